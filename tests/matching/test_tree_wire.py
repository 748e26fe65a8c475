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
    "nothing at all": Case({}, ("The matcher is empty. Set matcher_list or matcher_tree. [MatcherMissing]",)),
    "only what is for no match": Case(
        {"on_no_match": act()}, ("The matcher is empty. Set matcher_list or matcher_tree. [MatcherMissing]",)
    ),
    "an empty list": Case(
        {"matcher_list": {}}, ("matcher_list.matchers: The list is empty. Add at least one entry. [MatcherEmpty]",)
    ),
    "an empty entry": Case(
        listed({}),
        (
            f"{AT}.predicate: This field is required. Add it. [Missing]",
            f"{AT}.on_match: This field is required. Add it. [Missing]",
        ),
    ),
    "an empty predicate": Case(
        when({}),
        (
            f"{AT}.predicate: The predicate is empty. Set single_predicate, or_matcher, and_matcher or not_matcher. "
            "[PredicateMissing]",
        ),
    ),
    "any of none": Case(
        when({"or_matcher": {}}),
        (
            f"{AT}.predicate.or_matcher.predicate: The list has fewer than two predicates. Add at least two."
            " [PredicateMissing]",
        ),
    ),
    "all of one": Case(
        when({"and_matcher": {"predicate": [IS_A]}}),
        (
            f"{AT}.predicate.and_matcher.predicate: The list has fewer than two predicates. Add at least two."
            " [PredicateMissing]",
        ),
    ),
    "problems in several parts of a predicate": Case(
        when({"and_matcher": {"predicate": [single(input=header()), {"not_matcher": single(value_match=IS)}]}}),
        (
            f"{AT}.predicate.and_matcher.predicate[0].single_predicate: "
            "The predicate has no matcher. Set value_match or custom_match. [MatcherMissing]",
            f"{AT}.predicate.and_matcher.predicate[1].not_matcher.single_predicate.input: This field is required. Add"
            " it. [Missing]",
        ),
    ),
    "an input without a configuration": Case(
        when(single(input={"name": "n"}, value_match={"exact": "a"})),
        (f"{PREDICATE}.input.typed_config: The input is missing. Set it. [Missing]",),
    ),
    "a text of CEL": Case(
        when(single(input=ATTRIBUTE, value_match={"exact": "a"})),
        (
            f"{PREDICATE}: The input is the attributes of CEL, but the matcher reads a text. Use an input"
            " and a matcher of the same type. [TypeMismatch]",
        ),
    ),
    "an expression of CEL of a text": Case(
        when(single(input=header(), custom_match=TRUE)),
        (
            f"{PREDICATE}: The input is a text, but the matcher reads the attributes of CEL. Use an input"
            " and a matcher of the same type. [TypeMismatch]",
        ),
    ),
    "a matcher that nobody knows": Case(
        when(single(input=header(), custom_match=extension("google.protobuf.Int32Value", value=1))),
        (
            f"{PREDICATE}.custom_match.typed_config.type_url: 'google.protobuf.Int32Value' is not a supported matcher. "
            "Use another matcher. [TypeUnknown]",
        ),
    ),
    "an input that nobody knows": Case(
        when(single(input=extension(STRING, value="x"), value_match={"exact": "a"})),
        (
            f"{PREDICATE}.input.typed_config.type_url: 'google.protobuf.StringValue' is not a supported"
            " input. Use another input. "
            "[TypeUnknown]",
        ),
    ),
    "a header without a name": Case(
        when(single(input=header(""), value_match={"exact": "a"})),
        (
            f"{PREDICATE}.input.typed_config.header_name: '' is not a header name in lower case. Use lower-case"
            " letters, digits and hyphens. [NameInvalid]",
        ),
    ),
    "a header with capitals": Case(
        when(single(input=header("X-a"), value_match={"exact": "a"})),
        (
            f"{PREDICATE}.input.typed_config.header_name: 'X-a' is not a header name in lower case. Use lower-case"
            " letters, digits and hyphens. [NameInvalid]",
        ),
    ),
    "a header with a space": Case(
        {"matcher_tree": {"input": header("x a"), "exact_match_map": {"map": {"k": act()}}}},
        (
            "matcher_tree.input.typed_config.header_name: 'x a' is not a header name in lower case. Use lower-case"
            " letters, digits and hyphens. [NameInvalid]",
        ),
    ),
    "a header with a name that is too long": Case(
        when(single(input=header("x" * 16_384), value_match={"exact": "a"})),
        (
            f"{PREDICATE}.input.typed_config.header_name: The header name is longer than 16383 characters. Shorten"
            " it. [NameInvalid]",
        ),
    ),
    "an empty prefix": Case(
        when(single(input=header(), value_match={"prefix": ""})),
        (f"{PREDICATE}.value_match.prefix: The text is empty and would match every value. Set a text. [MatcherEmpty]",),
    ),
    "an expression in any case": Case(
        when(single(input=header(), value_match={"safe_regex": {"regex": "a"}, "ignore_case": True})),
        (
            f"{PREDICATE}.value_match.ignore_case: ignore_case has no effect on safe_regex. Remove it, and start the"
            " expression with (?i). "
            "[MatcherUnsupported]",
        ),
    ),
    "a matcher of texts from elsewhere": Case(
        when(single(input=header(), value_match={"custom": extension(STRING, value="a")})),
        (
            f"{PREDICATE}.value_match: The matcher is empty. Set exact, prefix, suffix, contains or safe_regex. "
            "[MatcherMissing]",
        ),
    ),
    "a map without an input or entries": Case(
        {"matcher_tree": {"prefix_match_map": {}}},
        (
            "matcher_tree.input: This field is required. Add it. [Missing]",
            "matcher_tree.prefix_match_map.map: The list is empty. Add at least one entry. [MatcherEmpty]",
        ),
    ),
    "no map": Case(
        {"matcher_tree": {"input": header()}},
        ("matcher_tree: The map is missing. Set exact_match_map or prefix_match_map. [MatcherMissing]",),
    ),
    "a map of CEL": Case(
        {"matcher_tree": {"input": ATTRIBUTE, "exact_match_map": {"map": {"k": act()}}}},
        (
            "matcher_tree.input: The input is the attributes of CEL, but the keys of a map are texts. Use an input"
            " that is a text. [TypeMismatch]",
        ),
    ),
    "a map from elsewhere": Case(
        {"matcher_tree": {"input": header(), "custom_match": extension(STRING, value="a")}},
        (
            "matcher_tree.custom_match: custom_match is not supported. Use exact_match_map or prefix_match_map."
            " [MatcherUnsupported]",
        ),
    ),
    "neither a tree nor an action": Case(
        {**keyed(), "on_no_match": {}},
        ("on_no_match: on_match is empty. Set matcher or action. [OnMatchMissing]",),
    ),
    "an action that nobody knows": Case(
        {"matcher_tree": {"input": header(), "exact_match_map": {"map": {"\n": {"action": TRUE}}}}},
        (
            "matcher_tree.exact_match_map.map.\\n.action.typed_config.type_url: "
            "'google.protobuf.BoolValue' is not a supported action. Use another action. [TypeUnknown]",
        ),
    ),
    "an action without a configuration": Case(
        when(IS_A, {"action": {"name": "n"}}),
        (f"{AT}.on_match.action.typed_config: The action is missing. Set it. [Missing]",),
    ),
    "a search that goes on": Case(
        when(IS_A, {**act(), "keep_matching": True}),
        (
            f"{AT}.on_match.keep_matching: keep_matching is not supported, because this filter runs one"
            " action for each call. Remove it. [KeepMatchingUnsupported]",
        ),
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
    assert problem.endswith(".matcher: Matchers are nested more than 16 levels deep. Use fewer levels. [TooDeep]")


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
    assert told == ([] if taken else [("TooDeep", "Predicates are nested more than 100 deep. Use fewer levels.")])


@pytest.mark.parametrize("url", ["nothing", "a/", "/"])
def test_a_type_without_a_name_is_refused(url: str) -> None:
    message = PACKAGES[0].Matcher()
    message.matcher_tree.input.typed_config.type_url = url
    message.matcher_tree.exact_match_map.map["k"].action.typed_config.type_url = PREFIX + STRING
    problems = Problems()
    assert parse_tree(message, KINDS, problems) is None
    assert [str(each) for each in problems] == [
        f"matcher_tree.input.typed_config.type_url: '{url}' is not a type URL. Use a prefix, a slash and a message"
        " name. "
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
        "matcher_tree.input.typed_config: Cannot decode the bytes. Expected"
        " envoy.type.matcher.v3.HttpRequestHeaderMatchInput. "
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
