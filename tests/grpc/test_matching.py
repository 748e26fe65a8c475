"""Trees that are built in Python: they mean what they read like, and what would be refused cannot be built."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.common.matcher.action.v3 import skip_action_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from google.protobuf import wrappers_pb2
from google.protobuf.message import Message
from tests.support.matching.trees import Request, Verdict, kinds

from authplane.core.problems import Problems
from authplane.dataplane.filters.calls import Side
from authplane.grpc.matching import (
    Predicate,
    Tree,
    all_of,
    any_of,
    by_header,
    by_prefix,
    cel,
    composite,
    composite_override,
    execute,
    first_match,
    header,
    not_,
    noting,
    skip,
    when,
)
from authplane.matching.explain_tree import explain
from authplane.matching.tree_wire import parse_tree


def named(name: str) -> Message:
    """Return an action."""
    return wrappers_pb2.StringValue(value=name)


def found(tree: Tree, **headers: str) -> Verdict:
    problems = Problems()
    parsed = parse_tree(tree, kinds(), problems)
    assert parsed is not None, list(problems)
    metadata = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    told = explain(parsed, Request(path="/shop.Cart/Add", metadata=metadata))
    return Verdict(told.noted, told.root.matched is True)


def holds(predicate: Predicate, **headers: str) -> bool:
    return found(first_match(when(predicate, then=named("yes"))), **headers).matched


X: Final = header("x-a")
ASKED: Final[dict[str, tuple[Predicate, tuple[str, ...], tuple[str, ...]]]] = {
    "is": (X.is_("a"), ("a",), ("A", "ab", "")),
    "is in any case": (X.is_("a", ignore_case=True), ("a", "A"), ("ab",)),
    "is one of": (X.is_one_of("a", "b"), ("a", "b"), ("c",)),
    "is one of one": (X.is_one_of("a"), ("a",), ("c",)),
    "begins with": (X.begins_with("a"), ("a", "ab"), ("ba",)),
    "ends with": (X.ends_with("a", ignore_case=True), ("bA",), ("ab",)),
    "contains": (X.contains("b"), ("abc",), ("ac",)),
    "matches": (X.matches("a|b+"), ("a", "bb"), ("ab",)),
    "is there": (X.is_there(), ("", "a"), ()),
    "not": (not_(X.is_("a")), ("b",), ("a",)),
    "all of": (all_of(X.begins_with("a"), X.ends_with("c")), ("abc",), ("ab", "bc")),
    "any of": (any_of(X.begins_with("a"), X.ends_with("c")), ("ab", "bc"), ("b",)),
}


@pytest.mark.parametrize(("predicate", "yes", "no"), ASKED.values(), ids=ASKED.keys())
def test_a_predicate_asks_what_it_reads_like(predicate: Predicate, yes: tuple[str, ...], no: tuple[str, ...]) -> None:
    assert [text for text in (*yes, *no) if holds(predicate, x_a=text)] == list(yes)


def test_a_header_that_is_missing_is_nothing() -> None:
    asked = [X.is_(""), X.is_there(), X.contains("a")]
    assert [holds(predicate) for predicate in asked] == [False, False, False]


TREE: Final = by_prefix(
    ":path",
    {
        "/shop.": by_header("x-tier", {"gold": named("gold"), "": named("none")}),
        "/shop.Cart/": first_match(when(header("x-user").is_("alice"), then=named("alice"))),
    },
    otherwise=named("other"),
)


def test_trees_contain_trees() -> None:
    assert found(TREE, x_user="alice") == Verdict(("alice",), matched=True)
    assert found(TREE, x_user="bob", x_tier="gold") == Verdict(("gold",), matched=True)
    assert found(TREE) == Verdict(("other",), matched=True)


def test_a_noted_action_lets_the_search_go_on() -> None:
    tree = first_match(when(X.is_there(), then=noting(named("seen"))), otherwise=named("end"))
    assert found(tree, x_a="a") == Verdict(("seen", "end"), matched=True)
    inner = first_match(when(X.is_there(), then=noting(first_match(when(X.is_there(), then=named("in"))))))
    assert found(inner, x_a="a") == Verdict(("in",), matched=False)


def test_the_same_tree_is_the_same_bytes() -> None:
    entries = {str(number): named(str(number)) for number in range(50)}
    backwards = dict(reversed(entries.items()))
    made = [composite(by_header("x-a", each)).SerializeToString(deterministic=True) for each in (entries, backwards)]
    assert made[0] == made[1]


def test_a_composite_filter_has_the_tree_and_its_actions() -> None:
    fault, rbac = fault_pb2.HTTPFault(), rbac_pb2.RBAC()
    tree = by_header("x-a", {"one": execute(fault), "two": execute(fault, rbac, sample=0.25)}, otherwise=skip())
    config = composite(tree)
    assert isinstance(config, extension_matcher_pb2.ExtensionWithMatcher)
    assert config.extension_config.typed_config.Is(composite_pb2.Composite.DESCRIPTOR)
    assert config.xds_matcher == tree
    assert config.xds_matcher.on_no_match.action.typed_config.Is(skip_action_pb2.SkipFilter.DESCRIPTOR)
    entries = config.xds_matcher.matcher_tree.exact_match_map.map
    one, two = composite_pb2.ExecuteFilterAction(), composite_pb2.ExecuteFilterAction()
    assert entries["one"].action.typed_config.Unpack(one)
    assert entries["two"].action.typed_config.Unpack(two)
    assert one.typed_config.typed_config.Is(fault.DESCRIPTOR)
    assert not one.HasField("filter_chain")
    assert not one.HasField("sample_percent")
    assert [each.typed_config.TypeName() for each in two.filter_chain.typed_config] == [
        fault.DESCRIPTOR.full_name, rbac.DESCRIPTOR.full_name
    ]  # fmt: skip
    assert two.sample_percent.default_value.numerator == 250_000
    assert composite_override(tree).xds_matcher == tree


def test_an_expression_is_sent_as_it_was_checked() -> None:
    single = cel("request.headers['x-a'] == 'a'").single_predicate
    assert single.input.typed_config.TypeName() == "xds.type.matcher.v3.HttpAttributesCelMatchInput"
    assert single.custom_match.typed_config.TypeName() == "xds.type.matcher.v3.CelMatcher"


def nested(levels: int) -> Tree:
    tree = first_match(when(X.is_("a"), then=skip()))
    for _ in range(levels - 1):
        tree = first_match(when(X.is_("a"), then=tree))
    return tree


REFUSED: Final[dict[str, tuple[Callable[[], Any], str]]] = {
    "a name with capitals": (
        lambda: header("X-A"),
        "'X-A' is not a header name in lower case. Use lower-case letters, digits and hyphens.",
    ),
    "a map by no header": (lambda: by_header("", {"a": skip()}), "'' is not a header name in lower case"),
    "an empty prefix": (lambda: X.begins_with(""), "The text is empty and would match every value. Set a text."),
    "a broken pattern": (lambda: X.matches("("), "'(' is not an RE2 expression: missing ): (. Use the RE2 syntax."),
    "a broken expression": (lambda: cel("request.nothing"), "1:8: request has no member nothing"),
    "an expression that is no truth value": (lambda: cel("request.path"), "bool"),
    "connections on the client": (lambda: cel("source.port > 1", side=Side.CLIENT), "source"),
    "all of nothing": (all_of, "There is no predicate. Pass at least one."),
    "a tree without branches": (first_match, "The tree has no branch. Pass at least one."),
    "a map without entries": (lambda: by_prefix("x-a", {}), "The tree has no entry. Pass at least one."),
    "no filter": (execute, "The action has no filter. Pass at least one filter, or use skip()."),
    "more than all": (lambda: execute(rbac_pb2.RBAC(), sample=2), "2 is not a share. Use a number from 0 to 1."),
    "a tree that is too deep": (
        lambda: composite(nested(17)),
        "Trees are nested more than 16 levels deep. Use fewer levels.",
    ),
}


@pytest.mark.parametrize(("build", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_would_be_refused_cannot_be_built(build: Callable[[], Any], why: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the text is compared)
        build()
    assert why in str(error.value)


def test_a_tree_of_sixteen_levels_can_be_built() -> None:
    assert composite(nested(16)).HasField("xds_matcher")
