"""Trees of values: where they lead, what they say of it, and that large maps cost no more than small ones."""

import time
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.matching.trees import Request, Verdict
from tests.support.timing import quickest

from authplane.core.problems import Path
from authplane.dataplane.filters.calls import Call, Side
from authplane.matching.explain_tree import Step, explain
from authplane.matching.matcher_tree import (
    Act,
    And,
    Branch,
    ExactMap,
    ListMatcher,
    Matcher,
    Nested,
    Not,
    Or,
    Predicate,
    Prefixes,
    PrefixMap,
    Single,
)
from authplane.matching.string_matchers import Contains, Exact, Prefix, Regex, StringMatcher, Suffix, compile_regex
from authplane.matching.tree_inputs import HasHeaders, HeaderInput, TextMatcher
from authplane.matching.tree_search import as_search

Tree = Matcher[HasHeaders, str]
X_A: Final = HeaderInput("x-a")
X_B: Final = HeaderInput("x-b")


def is_(text: str, source: HeaderInput = X_A) -> Predicate[HasHeaders]:
    return Single(source, TextMatcher(Exact(text)))


def when(predicate: Predicate[HasHeaders], action: str) -> Branch[HasHeaders, str]:
    return Branch(predicate, Act(action))


def asked(**headers: str) -> Request:
    return Request(metadata=tuple((name.replace("_", "-"), value) for name, value in headers.items()))


class Case(NamedTuple):
    tree: Tree
    request: Request
    want: str | None


INNER: Final[Tree] = ListMatcher(branches=(when(is_("yes", X_B), "inner"),))
MISSING: Final = asked()
CASES: Final = {
    "the first that matches": Case(
        ListMatcher(branches=(when(is_("b"), "1"), when(is_("a"), "2"), when(is_("a"), "3"))), asked(x_a="a"), "2"
    ),
    "nothing matches": Case(ListMatcher(branches=(when(is_("b"), "1"),)), asked(x_a="a"), None),
    "what is for no match": Case(
        ListMatcher(branches=(when(is_("b"), "1"),), on_no_match=Act("no")), asked(x_a="a"), "no"
    ),
    "what is missing is not the empty text": Case(ListMatcher(branches=(when(is_(""), "1"),)), MISSING, None),
    "what is empty is": Case(ListMatcher(branches=(when(is_(""), "1"),)), asked(x_a=""), "1"),
    "not of what is missing holds": Case(ListMatcher(branches=(when(Not(is_("a")), "1"),)), MISSING, "1"),
    "all of two": Case(
        ListMatcher(branches=(when(And((is_("a"), is_("b", X_B))), "1"),)), asked(x_a="a", x_b="b"), "1"
    ),
    "all of two, one of which does not hold": Case(
        ListMatcher(branches=(when(And((is_("a"), is_("b", X_B))), "1"),)), asked(x_a="a", x_b="c"), None
    ),
    "any of two": Case(ListMatcher(branches=(when(Or((is_("a"), is_("b", X_B))), "1"),)), asked(x_b="b"), "1"),
    "a branch that leads nowhere did not match": Case(
        ListMatcher(branches=(Branch(is_("a"), Nested(INNER)), when(is_("a"), "next"))), asked(x_a="a"), "next"
    ),
    "a key": Case(ExactMap.of(X_A, {"a": Act("1"), "b": Act("2")}), asked(x_a="b"), "2"),
    "no key": Case(ExactMap.of(X_A, {"a": Act("1")}, Act("no")), asked(x_a="ab"), "no"),
    "no value, whatever the keys": Case(ExactMap.of(X_A, {"": Act("1")}, Act("no")), MISSING, "no"),
    "a key that leads nowhere": Case(ExactMap.of(X_A, {"a": Nested(INNER)}, Act("no")), asked(x_a="a"), "no"),
    "the longest prefix": Case(
        PrefixMap.of(X_A, {"": Act("0"), "a": Act("1"), "ab": Act("2"), "b": Act("3")}), asked(x_a="abc"), "2"
    ),
    "the empty prefix": Case(PrefixMap.of(X_A, {"": Act("0"), "a": Act("1")}), asked(x_a="b"), "0"),
    "the empty prefix of nothing": Case(PrefixMap.of(X_A, {"": Act("0")}, Act("no")), MISSING, "no"),
    "a shorter prefix if the longest leads nowhere": Case(
        PrefixMap.of(X_A, {"a": Act("1"), "ab": Nested(INNER)}, Act("no")), asked(x_a="abc"), "1"
    ),
    "no prefix leads anywhere": Case(
        PrefixMap.of(X_A, {"a": Nested(INNER), "ab": Nested(INNER)}, Act("no")), asked(x_a="abc"), "no"
    ),
    "an inner tree has its own end": Case(
        ExactMap.of(X_A, {"a": Nested(ListMatcher(branches=(when(is_("b"), "1"),), on_no_match=Act("inner")))}),
        asked(x_a="a"),
        "inner",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.requirement("UM-9")
@pytest.mark.requirement("UM-12")
@pytest.mark.requirement("UM-13")
@pytest.mark.requirement("UM-14")
@pytest.mark.requirement("UM-16")
def test_a_tree_leads_to_one_action(case: Case) -> None:
    assert as_search(case.tree)(case.request) == case.want
    assert explain(case.tree, case.request).action == case.want


KEPT: Final[dict[str, tuple[Tree, Verdict]]] = {
    "noted on the way": (
        ListMatcher(branches=(Branch(is_("a"), Act("1", keep_matching=True)), when(is_("a"), "2"))),
        Verdict(("1", "2"), matched=True),
    ),
    "noted without an end": (
        ListMatcher(branches=(Branch(is_("a"), Act("1", keep_matching=True)),)),
        Verdict(("1",), matched=False),
    ),
    "an end that goes on is none": (
        ListMatcher(branches=(when(is_("b"), "1"),), on_no_match=Act("no", keep_matching=True)),
        Verdict(("no",), matched=False),
    ),
    "the end of an inner tree that goes on": (
        ExactMap.of(X_A, {"a": Nested(ListMatcher(branches=(when(is_("a"), "1"),)), keep_matching=True)}, Act("no")),
        Verdict(("1", "no"), matched=True),
    ),
    "shorter prefixes after one that goes on": (
        PrefixMap.of(X_A, {"a": Act("long", keep_matching=True), "": Act("short")}),
        Verdict(("long", "short"), matched=True),
    ),
}


@pytest.mark.parametrize(("tree", "want"), KEPT.values(), ids=KEPT.keys())
@pytest.mark.requirement("UM-15")
@pytest.mark.requirement("UM-16")
def test_actions_that_let_the_search_go_on_are_noted(tree: Tree, want: Verdict) -> None:
    request = asked(x_a="a")
    told = explain(tree, request)
    assert Verdict(told.noted, told.root.matched is True) == want
    assert told.action == (want.actions[-1] if want.matched else None)


METADATA: Final = (
    ("x-a", "1"), ("x-b", "2"), ("x-a", ""), ("x-bin", b"\xfb\xff"), ("x-bin", b"a"), ("te", "trailers"),
    ("content-type", "application/grpc+json"),
)  # fmt: skip
HEADERS: Final[dict[str, str | None]] = {
    "x-a": "1,", "x-b": "2", "x-c": None, "x-bin": "+/8,YQ", "te": None, "content-type": "application/grpc",
    ":path": "/s/m", ":authority": "shop", "host": "shop", ":method": "POST", ":scheme": None,
}  # fmt: skip


@pytest.mark.parametrize(("name", "want"), HEADERS.items(), ids=HEADERS.keys())
@pytest.mark.requirement("UM-8")
def test_a_header_is_read_as_on_the_wire(name: str, want: str | None) -> None:
    assert HeaderInput(name).read(Request(path="/s/m", authority="shop", metadata=METADATA)) == want


@pytest.mark.requirement("UM-8")
def test_the_headers_of_a_call_are_read() -> None:
    call = Call(
        side=Side.SERVER, path="/s/m", authority="shop", metadata=(("x-a", "1"),), started=datetime.now(UTC),
        remaining=None, connection=None,
    )  # fmt: skip
    assert [HeaderInput(name).read(call) for name in ("x-a", ":path", "host")] == ["1", "/s/m", "shop"]


# --- Prefixes

_WORDS: Final = st.text("ab", max_size=6)


@given(st.sets(_WORDS, max_size=20), _WORDS)
@pytest.mark.requirement("UM-12")
def test_prefixes_are_those_that_the_value_begins_with(keys: set[str], value: str) -> None:
    ordered = tuple(sorted(keys))
    found = [ordered[place] for place in Prefixes(ordered).of(value)]
    assert found == sorted((key for key in keys if value.startswith(key)), key=len, reverse=True)


class Counted(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __lt__(self, other: str) -> bool:
        Counted.compared += 1
        return str.__lt__(self, other)


@pytest.mark.parametrize("value", ["key-5000", "key-5000/more", "key-99999", "kez", "", "a", "\U0010ffff"])
@pytest.mark.requirement("UM-12")
def test_ten_thousand_prefixes_are_found_with_few_comparisons(value: str) -> None:
    keys = tuple(sorted(f"key-{number}" for number in range(10_000)))
    prefixes = Prefixes(keys)
    Counted.compared = 0
    want = [key for key in keys if value.startswith(key)]
    assert [keys[place] for place in prefixes.of(Counted(value))] == sorted(want, key=len, reverse=True)
    assert 0 < Counted.compared <= 30


def test_prefixes_of_one_another_are_found_with_few_comparisons() -> None:
    keys = tuple("a" * length for length in range(1, 3_000))
    prefixes = Prefixes(keys)
    assert [*prefixes.of("b")] == []
    assert next(prefixes.of("a" * 1_000 + "b")) == 999
    assert [*prefixes.of("aab")] == [1, 0]


def test_keys_that_each_share_a_little_more_with_a_value_are_found_with_few_comparisons() -> None:
    keys = tuple(sorted("a" * length + "B" for length in range(1_000)))
    prefixes = Prefixes(keys)
    Counted.compared = 0
    assert [*prefixes.of(Counted("a" * 1_000))] == []
    assert Counted.compared <= 30


@pytest.mark.requirement("UM-12")
def test_a_large_map_costs_about_as_much_as_a_small_one() -> None:
    keys = {size: {f"key-{number}": Act(str(number)) for number in range(size)} for size in (10, 10_000)}

    def cost(tree: Tree, size: int) -> float:
        request = asked(x_a=f"key-{size - 1}")
        search = as_search(tree)
        begun = time.process_time()
        for _ in range(1_000):
            assert search(request) == str(size - 1)
        return time.process_time() - begun

    for kind in ("exact", "prefix"):
        small, large = (
            ExactMap.of(X_A, entries) if kind == "exact" else PrefixMap.of(X_A, entries) for entries in keys.values()
        )
        assert quickest(lambda: cost(large, 10_000)) < 5 * quickest(lambda: cost(small, 10))  # noqa: B023 (at once)


# --- Explanations


def drawn(step: Step) -> list[str]:
    """Write a step and what is below it, a line each."""
    mark = "+" if step.matched else "-"
    head = f"{mark} {step.text}" + (f": {step.why}" if step.why else "")
    return [head, *(f"  {line}" for below in step.below for line in drawn(below))]


def paths(step: Step) -> list[str]:
    return [".".join(map(str, step.path)), *(path for below in step.below for path in paths(below))]


def test_an_explanation_shows_every_branch_that_is_tried_and_what_was_read() -> None:
    tree: Tree = ListMatcher(
        branches=(
            when(And((is_("a"), is_("never reached"))), "1"),
            Branch(
                Or((Not(is_("b")), is_("c"))),
                Nested(PrefixMap.of(X_B, {"/s": Nested(INNER), "/": Act("2", keep_matching=True)})),
            ),
            when(is_("z", HeaderInput("x-missing")), "3"),
            Branch(is_("b"), Nested(ExactMap.of(X_B, {"k": Act("4")}, Act("5")))),
            when(is_("b"), "not tried"),
        ),
        on_no_match=Act("not tried"),
    )
    found = explain(tree, asked(x_a="b", x_b="/s/m"), lambda action: f"<{action}>")
    assert drawn(found.root) == [
        "+ list",
        "  - branch 0",
        "    - all of",
        "      - header x-a is 'a': value is 'b'",
        "  - branch 1",
        "    - any of",
        "      - not",
        "        + header x-a is 'b': value is 'b'",
        "      - header x-a is 'c': value is 'b'",
        "  - branch 2",
        "    - header x-missing is 'z': no value",
        "  + branch 3",
        "    + header x-a is 'b': value is 'b'",
        "    + map by header x-b: value is '/s/m', and no key equals it",
        "      + on no match",
        "        + action <5>",
    ]
    assert found.root.below[3].below[1].path == ("matcher_list", "matchers", 3, "on_match", "matcher")
    assert found.path == ("matcher_list", "matchers", 3, "on_match", "matcher", "on_no_match", "action")
    listed = "matcher_list.matchers."
    either = f"{listed}1.predicate.or_matcher.predicate."
    assert paths(found.root)[1:8] == [
        f"{listed}0",
        f"{listed}0.predicate",
        f"{listed}0.predicate.and_matcher.predicate.0.single_predicate",
        f"{listed}1",
        f"{listed}1.predicate",
        f"{either}0",
        f"{either}0.not_matcher.single_predicate",
    ]


def test_an_explanation_of_prefixes_has_the_longest_first() -> None:
    tree: Tree = PrefixMap.of(X_A, {"a": Act("1", keep_matching=True), "ab": Nested(INNER), "": Act("2")}, Act("no"))
    assert drawn(explain(tree, asked(x_a="abc")).root) == [
        "+ map by prefix of header x-a: value is 'abc'",
        "  - key 'ab'",
        "    - list",
        "      - branch 0",
        "        - header x-b is 'yes': no value",
        "  - key 'a'",
        "    + action 1: noted; the search continues",
        "  + key ''",
        "    + action 2",
    ]
    assert drawn(explain(tree, asked()).root) == [
        "+ map by prefix of header x-a: no value",
        "  + on no match",
        "    + action no",
    ]


def regex(pattern: str) -> Regex:
    made = compile_regex(pattern)
    assert isinstance(made, Regex)
    return made


SAID: Final[dict[str, StringMatcher]] = {
    "is 'a'": Exact("a"),
    "is 'a' (ignoring case)": Exact("a", ignore_case=True),
    "begins with 'a'": Prefix("a"),
    "ends with 'a'": Suffix("a"),
    "contains 'a'": Contains("a"),
    "matches 'a+'": regex("a+"),
}


@pytest.mark.parametrize(("text", "matcher"), SAID.items(), ids=SAID.keys())
def test_a_matcher_says_what_it_asks(text: str, matcher: StringMatcher) -> None:
    assert str(TextMatcher(matcher)) == text


class Odd(NamedTuple):
    """A matcher of what cannot be shown, which can say more."""

    def matches(self, value: object) -> bool:
        return False

    def tell(self, value: object, path: Path) -> Step:
        return Step(path=path, text="are the attributes odd?", matched=False, why="there is no such key")


class Everything(NamedTuple):
    """An input that gives what cannot be shown."""

    def read(self, subject: HasHeaders) -> HasHeaders:
        return subject


def test_a_matcher_may_say_why() -> None:
    tree: Tree = ListMatcher(branches=(Branch(Single(Everything(), Odd()), Act("1")),))
    assert drawn(explain(tree, asked()).root) == [
        "- list",
        "  - branch 0",
        "    - are the attributes odd?: there is no such key",
    ]
