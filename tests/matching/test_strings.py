"""Matchers of text: what they match, and which messages are refused."""

from typing import Any, Final, NamedTuple

import pytest
from envoy.type.matcher.v3 import string_pb2
from hypothesis import given
from hypothesis import strategies as st
from xds.type.matcher.v3 import string_pb2 as xds_string_pb

from authplane.core.problems import Problems
from authplane.matching.string_matchers import (
    Contains,
    Exact,
    NoRegex,
    Prefix,
    Regex,
    StringMatcher,
    Suffix,
    as_test,
    compile_regex,
    lower,
    matches,
    matches_any,
)
from authplane.matching.wire import parse_string_matcher, parse_string_matchers

MESSAGES: Final = [string_pb2.StringMatcher, xds_string_pb.StringMatcher]


def regex(pattern: str) -> Regex:
    made = compile_regex(pattern)
    assert isinstance(made, Regex)
    return made


class Case(NamedTuple):
    matcher: StringMatcher
    yes: tuple[str, ...]
    no: tuple[str, ...]


CASES: Final = {
    "exact": Case(Exact("ab"), ("ab",), ("AB", "abc", "")),
    "exactly nothing": Case(Exact(""), ("",), ("a",)),
    "exact of any case": Case(Exact("aB", ignore_case=True), ("ab", "AB"), ("abc",)),
    "prefix": Case(Prefix("ab"), ("ab", "abc"), ("a", "ABc", "cab")),
    "prefix of any case": Case(Prefix("aB", ignore_case=True), ("Abc",), ("a",)),
    "suffix": Case(Suffix("ab"), ("ab", "cab"), ("abc", "cAB")),
    "suffix of any case": Case(Suffix("aB", ignore_case=True), ("cAb",), ("abc",)),
    "contains": Case(Contains("ab"), ("xaby",), ("xay", "xABy")),
    "contains of any case": Case(Contains("aB", ignore_case=True), ("xAby",), ("a b",)),
    "an expression matches the whole": Case(regex("a+"), ("a", "aa"), ("ab", "ba", "")),
    "alternatives match the whole": Case(regex("a|ab"), ("a", "ab"), ("abc",)),
    "what is no Unicode matches no expression": Case(regex("(?s).*"), ("", "\n"), ("\udcff", "\ud800")),
    "only ASCII letters have a case": Case(Exact("k", ignore_case=True), ("K",), ("\u212a",)),
}


@pytest.mark.requirement("UM-10")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_matcher_matches(case: Case) -> None:
    want = [True] * len(case.yes) + [False] * len(case.no)
    assert [matches(case.matcher, text) for text in (*case.yes, *case.no)] == want
    assert [as_test(case.matcher)(text) for text in (*case.yes, *case.no)] == want


def test_one_of_a_list_is_enough() -> None:
    listed = (Exact("a"), Prefix("b"))
    assert [matches_any(listed, text) for text in ("a", "bc", "c")] == [True, True, False]
    assert not matches_any((), "a")


@pytest.mark.requirement("UM-10")
@pytest.mark.parametrize("message", MESSAGES, ids=["envoy", "xds"])
@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"exact": ""}, Exact("")),
        ({"exact": "a", "ignore_case": True}, Exact("a", ignore_case=True)),
        ({"prefix": "a"}, Prefix("a")),
        ({"suffix": "a"}, Suffix("a")),
        ({"contains": "a", "ignore_case": True}, Contains("a", ignore_case=True)),
        ({"safe_regex": {"regex": "a.*"}}, regex("a.*")),
    ],
)
def test_a_message_is_read(message: Any, fields: dict[str, Any], want: StringMatcher) -> None:
    problems = Problems()
    assert parse_string_matcher(message(**fields), problems) == want
    assert not problems


@pytest.mark.requirement("UM-10")
@pytest.mark.parametrize("message", MESSAGES, ids=["envoy", "xds"])
@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, "The matcher is empty. Set exact, prefix, suffix, contains or safe_regex. [MatcherMissing]"),
        (
            {"custom": {"name": "x"}},
            "The matcher is empty. Set exact, prefix, suffix, contains or safe_regex. [MatcherMissing]",
        ),
        ({"prefix": ""}, "prefix: The text is empty and would match every value. Set a text. [MatcherEmpty]"),
        ({"suffix": ""}, "suffix: The text is empty and would match every value. Set a text. [MatcherEmpty]"),
        ({"contains": ""}, "contains: The text is empty and would match every value. Set a text. [MatcherEmpty]"),
        ({"safe_regex": {"regex": ""}}, "safe_regex.regex: '' is empty. Use the RE2 syntax. [RegexInvalid]"),
        (
            {"safe_regex": {"regex": "("}},
            "safe_regex.regex: '(' is not an RE2 expression: missing ): (. Use the RE2 syntax. [RegexInvalid]",
        ),
        (
            {"safe_regex": {"regex": "a(?=b)"}},
            "safe_regex.regex: 'a(?=b)' is not an RE2 expression: invalid perl operator: (?=. Use the RE2 syntax."
            " [RegexInvalid]",
        ),
        (
            {"safe_regex": {"regex": "a"}, "ignore_case": True},
            "ignore_case: ignore_case has no effect on safe_regex. Remove it, and start the expression with (?i)."
            " [MatcherUnsupported]",
        ),
    ],
)
def test_a_message_is_refused(message: Any, fields: dict[str, Any], want: str) -> None:
    problems = Problems()
    assert parse_string_matcher(message(**fields), problems) is None
    assert [str(each) for each in problems] == [want]


def test_a_list_tells_every_problem() -> None:
    problems = Problems()
    messages = [string_pb2.StringMatcher(prefix=""), string_pb2.StringMatcher(exact="a"), string_pb2.StringMatcher()]
    assert parse_string_matchers(messages, problems) == (Exact("a"),)
    assert [each.path for each in problems] == [("patterns", 0, "prefix"), ("patterns", 2)]


@given(st.text(), st.text())
def test_case_is_ignored_on_both_sides(value: str, text: str) -> None:
    for kind in (Exact, Prefix, Suffix, Contains):
        assert matches(kind(value, ignore_case=True), text) == matches(kind(lower(value)), lower(text))


@given(st.text(alphabet="ab.*+()[]|\\?{}1,", max_size=20), st.text(max_size=10))
def test_no_expression_and_no_text_raises(pattern: str, text: str) -> None:
    made = compile_regex(pattern)
    assert isinstance(made, NoRegex) or matches(made, text) in {True, False}
