"""Messages of trees: what is refused, with every problem at its path."""

from typing import Any, Final, NamedTuple

import pytest
from google.protobuf import json_format, wrappers_pb2
from tests.support.matching.trees import HEADERS, PACKAGES, parse_action

from authplane.core.problems import Problems
from authplane.matching.matcher_tree import Act, And, Branch, ExactMap, ListMatcher, Nested, Not, Or, PrefixMap, Single
from authplane.matching.string_matchers import Exact
from authplane.matching.tree_inputs import HasHeaders, HeaderInput, TextMatcher
from authplane.matching.tree_wire import InputKind, Kinds, MatcherKind, ValueType, parse_tree

PREFIX: Final = "type.googleapis.com/"
STRING: Final = "google.protobuf.StringValue"
BOOL: Final = "google.protobuf.BoolValue"
ATTRIBUTES: Final = "google.protobuf.UInt32Value"
"""Stands for an input of CEL, as BoolValue does for a matcher."""


class Attributes(NamedTuple):
    """An input that gives what CEL reads."""

    def read(self, subject: HasHeaders) -> HasHeaders | None:
        return subject


class Always(NamedTuple):
    """A matcher of what CEL reads."""

    answer: bool

    def matches(self, value: HasHeaders) -> bool:
        return self.answer


KINDS: Final[Kinds[HasHeaders, str]] = Kinds(
    inputs={**HEADERS, ATTRIBUTES: InputKind(ValueType.CEL, lambda _data, _problems: Attributes())},
    matchers={
        BOOL: MatcherKind(ValueType.CEL, lambda data, _: Always(wrappers_pb2.BoolValue.FromString(data).value)),
        STRING: MatcherKind(
            ValueType.TEXT, lambda data, _: TextMatcher(Exact(wrappers_pb2.StringValue.FromString(data).value))
        ),
    },
    actions={STRING: parse_action},
)


def extension(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": "n", "typed_config": {"@type": PREFIX + name, **fields}}


def header(name: str = "x-a") -> dict[str, Any]:
    return extension("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", header_name=name)


def act(name: str = "yes") -> dict[str, Any]:
    return {"action": extension(STRING, value=name)}


def single(**fields: Any) -> dict[str, Any]:
    return {"single_predicate": fields}


IS_A: Final = single(input=header(), value_match={"exact": "a"})
IS: Final = {"exact": "a"}
TRUE: Final = extension(BOOL, value=True)
ATTRIBUTE: Final = extension(ATTRIBUTES, value=1)


def listed(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"matcher_list": {"matchers": list(entries)}, **more}


def when(predicate: Any, on_match: Any = None) -> dict[str, Any]:
    return listed({"predicate": predicate, "on_match": act() if on_match is None else on_match})


def keyed(kind: str = "exact_match_map", **more: Any) -> dict[str, Any]:
    return {"matcher_tree": {"input": header(), kind: {"map": {"k": act()}}, **more}}


def nested(levels: int, how: str) -> dict[str, Any]:
    """Return a tree with so many levels in all."""
    tree = when(IS_A)
    for _ in range(levels - 1):
        match how:
            case "branch":
                tree = when(IS_A, {"matcher": tree})
            case "on_no_match":
                tree = {**when(IS_A), "on_no_match": {"matcher": tree}}
            case _:
                tree = {"matcher_tree": {"input": header(), how: {"map": {"k": {"matcher": tree}}}}}
    return tree


def judged(package: Any, tree: dict[str, Any], kinds: Kinds[HasHeaders, str] = KINDS) -> tuple[Any, list[str]]:
    problems = Problems()
    found = parse_tree(json_format.ParseDict(tree, package.Matcher()), kinds, problems)
    return found, [str(each) for each in problems]


class Case(NamedTuple):
    tree: dict[str, Any]
    problems: tuple[str, ...]


AT: Final = "matcher_list.matchers[0]"
PREDICATE: Final = f"{AT}.predicate.single_predicate"
REFUSED: Final = {
    "nothing at all": Case({}, ("one of matcher_list and matcher_tree must be set [MatcherMissing]",)),
    "only what is for no match": Case(
        {"on_no_match": act()}, ("one of matcher_list and matcher_tree must be set [MatcherMissing]",)
    ),
    "an empty list": Case({"matcher_list": {}}, ("matcher_list.matchers: there must be at least one [MatcherEmpty]",)),
    "an empty entry": Case(
        listed({}), (f"{AT}.predicate: must be set [Missing]", f"{AT}.on_match: must be set [Missing]")
    ),
    "an empty predicate": Case(
        when({}),
        (
            f"{AT}.predicate: one of single_predicate, or_matcher, and_matcher and not_matcher must be set "
            "[PredicateMissing]",
        ),
    ),
    "any of none": Case(
        when({"or_matcher": {}}),
        (f"{AT}.predicate.or_matcher.predicate: there must be at least two [PredicateMissing]",),
    ),
    "all of one": Case(
        when({"and_matcher": {"predicate": [IS_A]}}),
        (f"{AT}.predicate.and_matcher.predicate: there must be at least two [PredicateMissing]",),
    ),
    "problems in several parts of a predicate": Case(
        when({"and_matcher": {"predicate": [single(input=header()), {"not_matcher": single(value_match=IS)}]}}),
        (
            f"{AT}.predicate.and_matcher.predicate[0].single_predicate: "
            "one of value_match and custom_match must be set [MatcherMissing]",
            f"{AT}.predicate.and_matcher.predicate[1].not_matcher.single_predicate.input: must be set [Missing]",
        ),
    ),
    "an input without a configuration": Case(
        when(single(input={"name": "n"}, value_match={"exact": "a"})),
        (f"{PREDICATE}.input.typed_config: the input must be set [Missing]",),
    ),
    "a text of CEL": Case(
        when(single(input=ATTRIBUTE, value_match={"exact": "a"})),
        (f"{PREDICATE}: the input gives the attributes of CEL, and the matcher takes a text [TypeMismatch]",),
    ),
    "an expression of CEL of a text": Case(
        when(single(input=header(), custom_match=TRUE)),
        (f"{PREDICATE}: the input gives a text, and the matcher takes the attributes of CEL [TypeMismatch]",),
    ),
    "a matcher that nobody knows": Case(
        when(single(input=header(), custom_match=extension("google.protobuf.Int32Value", value=1))),
        (
            f"{PREDICATE}.custom_match.typed_config.type_url: 'google.protobuf.Int32Value' is no matcher that is known "
            "here [TypeUnknown]",
        ),
    ),
    "an input that nobody knows": Case(
        when(single(input=extension(STRING, value="x"), value_match={"exact": "a"})),
        (
            f"{PREDICATE}.input.typed_config.type_url: 'google.protobuf.StringValue' is no input that is known here "
            "[TypeUnknown]",
        ),
    ),
    "a header without a name": Case(
        when(single(input=header(""), value_match={"exact": "a"})),
        (f"{PREDICATE}.input.typed_config.header_name: '' is not the name of a header in lower case [NameInvalid]",),
    ),
    "a header with capitals": Case(
        when(single(input=header("X-a"), value_match={"exact": "a"})),
        (f"{PREDICATE}.input.typed_config.header_name: 'X-a' is not the name of a header in lower case [NameInvalid]",),
    ),
    "a header with a space": Case(
        {"matcher_tree": {"input": header("x a"), "exact_match_map": {"map": {"k": act()}}}},
        ("matcher_tree.input.typed_config.header_name: 'x a' is not the name of a header in lower case [NameInvalid]",),
    ),
    "a header with a name that is too long": Case(
        when(single(input=header("x" * 16_384), value_match={"exact": "a"})),
        (f"{PREDICATE}.input.typed_config.header_name: is longer than 16383 characters [NameInvalid]",),
    ),
    "an empty prefix": Case(
        when(single(input=header(), value_match={"prefix": ""})),
        (f"{PREDICATE}.value_match.prefix: is empty; everything would match [MatcherEmpty]",),
    ),
    "an expression in any case": Case(
        when(single(input=header(), value_match={"safe_regex": {"regex": "a"}, "ignore_case": True})),
        (
            f"{PREDICATE}.value_match.ignore_case: has no effect on safe_regex; write (?i) into the expression "
            "[MatcherUnsupported]",
        ),
    ),
    "a matcher of texts from elsewhere": Case(
        when(single(input=header(), value_match={"custom": extension(STRING, value="a")})),
        (
            f"{PREDICATE}.value_match: one of exact, prefix, suffix, contains and safe_regex must be set "
            "[MatcherMissing]",
        ),
    ),
    "a map without an input or entries": Case(
        {"matcher_tree": {"prefix_match_map": {}}},
        (
            "matcher_tree.input: must be set [Missing]",
            "matcher_tree.prefix_match_map.map: there must be at least one [MatcherEmpty]",
        ),
    ),
    "no map": Case(
        {"matcher_tree": {"input": header()}},
        ("matcher_tree: one of exact_match_map and prefix_match_map must be set [MatcherMissing]",),
    ),
    "a map of CEL": Case(
        {"matcher_tree": {"input": ATTRIBUTE, "exact_match_map": {"map": {"k": act()}}}},
        ("matcher_tree.input: the input gives the attributes of CEL, and the keys of a map are texts [TypeMismatch]",),
    ),
    "a map from elsewhere": Case(
        {"matcher_tree": {"input": header(), "custom_match": extension(STRING, value="a")}},
        ("matcher_tree.custom_match: is not supported; use exact_match_map or prefix_match_map [MatcherUnsupported]",),
    ),
    "neither a tree nor an action": Case(
        {**keyed(), "on_no_match": {}},
        ("on_no_match: one of matcher and action must be set [OnMatchMissing]",),
    ),
    "an action that nobody knows": Case(
        {"matcher_tree": {"input": header(), "exact_match_map": {"map": {"\n": {"action": TRUE}}}}},
        (
            "matcher_tree.exact_match_map.map.\\n.action.typed_config.type_url: "
            "'google.protobuf.BoolValue' is no action that is known here [TypeUnknown]",
        ),
    ),
    "an action without a configuration": Case(
        when(IS_A, {"action": {"name": "n"}}),
        (f"{AT}.on_match.action.typed_config: the action must be set [Missing]",),
    ),
    "a search that goes on": Case(
        when(IS_A, {**act(), "keep_matching": True}),
        (f"{AT}.on_match.keep_matching: has no place here: there is one action in the end [KeepMatchingUnsupported]",),
    ),
}


@pytest.mark.parametrize("package", PACKAGES, ids=["xds", "envoy"])
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
@pytest.mark.requirement("UM-1")
@pytest.mark.requirement("UM-2")
@pytest.mark.requirement("UM-4")
@pytest.mark.requirement("UM-5")
@pytest.mark.requirement("UM-6")
@pytest.mark.requirement("UM-7")
@pytest.mark.requirement("UM-10")
@pytest.mark.requirement("UM-11")
@pytest.mark.requirement("UM-13")
@pytest.mark.requirement("UM-15")
def test_a_tree_is_refused_with_every_problem(case: Case, package: Any) -> None:
    assert judged(package, case.tree) == (None, list(case.problems))


@pytest.mark.parametrize("how", ["branch", "on_no_match", "exact_match_map", "prefix_match_map"])
@pytest.mark.parametrize("package", PACKAGES, ids=["xds", "envoy"])
@pytest.mark.requirement("UM-3")
def test_a_tree_is_sixteen_deep_and_no_more(package: Any, how: str) -> None:
    deepest, problems = judged(package, nested(16, how))
    assert deepest is not None
    assert problems == []
    refused, [problem] = judged(package, nested(17, how))
    assert refused is None
    assert problem.endswith(".matcher: matchers are nested more than 16 deep [TooDeep]")


@pytest.mark.parametrize("package", PACKAGES, ids=["xds", "envoy"])
@pytest.mark.parametrize(("negations", "taken"), [(99, True), (100, False), (2_000, False)])
def test_predicates_nest_a_hundred_deep_and_no_more(package: Any, negations: int, taken: bool) -> None:
    message = package.Matcher()
    entry = message.matcher_list.matchers.add()
    part = entry.predicate
    for _ in range(negations):
        part = part.not_matcher
    json_format.ParseDict(IS_A, part)
    json_format.ParseDict(act(), entry.on_match)
    problems = Problems()
    assert (parse_tree(message, KINDS, problems) is not None) is taken
    told = [(each.reason, each.message) for each in problems]
    assert told == ([] if taken else [("TooDeep", "predicates are nested more than 100 deep")])


@pytest.mark.parametrize("url", ["nothing", "a/", "/"])
def test_a_type_without_a_name_is_refused(url: str) -> None:
    message = PACKAGES[0].Matcher()
    message.matcher_tree.input.typed_config.type_url = url
    message.matcher_tree.exact_match_map.map["k"].action.typed_config.type_url = PREFIX + STRING
    problems = Problems()
    assert parse_tree(message, KINDS, problems) is None
    assert [str(each) for each in problems] == [
        f"matcher_tree.input.typed_config.type_url: '{url}' is not a prefix, a slash and the name of a message "
        "[TypeUrlInvalid]"
    ]


@pytest.mark.requirement("UM-7")
def test_an_input_that_is_no_message_is_refused() -> None:
    message = PACKAGES[0].Matcher()
    json_format.ParseDict(keyed(), message)
    message.matcher_tree.input.typed_config.value = b"\xff"
    problems = Problems()
    assert parse_tree(message, KINDS, problems) is None
    assert [str(each) for each in problems] == [
        "matcher_tree.input.typed_config: the bytes are no envoy.type.matcher.v3.HttpRequestHeaderMatchInput "
        "[Unreadable]"
    ]


X_A: Final[HeaderInput] = HeaderInput("x-a")
READ_A: Final[Single[HasHeaders]] = Single(X_A, TextMatcher(Exact("a")))
READ: Final = {
    "a list": (when(IS_A), ListMatcher(branches=(Branch(READ_A, Act("yes")),))),
    "all, any and not": (
        when({"and_matcher": {"predicate": [IS_A, {"or_matcher": {"predicate": [IS_A, {"not_matcher": IS_A}]}}]}}),
        ListMatcher(branches=(Branch(And((READ_A, Or((READ_A, Not(READ_A))))), Act("yes")),)),
    ),
    "a matcher from elsewhere": (
        when(single(input=ATTRIBUTE, custom_match=TRUE)),
        ListMatcher(branches=(Branch(Single(Attributes(), Always(answer=True)), Act("yes")),)),
    ),
    "a matcher of texts from elsewhere": (
        when(single(input=header(), custom_match=extension(STRING, value="a"))),
        ListMatcher(branches=(Branch(READ_A, Act("yes")),)),
    ),
    "a map": (keyed(), ExactMap.of(X_A, {"k": Act("yes")})),
    "a map of prefixes with a tree in it": (
        {
            "matcher_tree": {
                "input": header(),
                "prefix_match_map": {"map": {"b": {"matcher": when(IS_A)}, "": act("all")}},
            },
            "on_no_match": act("no"),
        },
        PrefixMap.of(
            X_A, {"": Act("all"), "b": Nested(ListMatcher(branches=(Branch(READ_A, Act("yes")),)))}, Act("no")
        ),
    ),
}


@pytest.mark.parametrize("package", PACKAGES, ids=["xds", "envoy"])
@pytest.mark.parametrize(("tree", "want"), READ.values(), ids=READ.keys())
@pytest.mark.requirement("UM-1")
@pytest.mark.requirement("UM-6")
@pytest.mark.requirement("UM-11")
def test_a_tree_is_read_as_it_is_meant(tree: dict[str, Any], want: Any, package: Any) -> None:
    assert judged(package, tree) == (want, [])


@pytest.mark.requirement("UM-15")
def test_where_a_search_may_go_on_it_does() -> None:
    kinds = Kinds(inputs=KINDS.inputs, actions=KINDS.actions, keep_matching=True)
    tree = when(IS_A, {**act(), "keep_matching": True})
    want = ListMatcher(branches=(Branch(READ_A, Act("yes", keep_matching=True)),))
    assert judged(PACKAGES[0], tree, kinds) == (want, [])
