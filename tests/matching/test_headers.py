"""Matchers of headers."""

from typing import Any, Final, NamedTuple

import pytest
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.type.v3 import range_pb2

from authplane.core.problems import Problems
from authplane.matching.header_matchers import matches_header
from authplane.matching.wire import parse_header_matcher


class Case(NamedTuple):
    fields: dict[str, Any]
    yes: tuple[str | None, ...]
    no: tuple[str | None, ...]


RANGE: Final = range_pb2.Int64Range(start=-1, end=10)
CASES: Final = {
    "exact": Case({"exact_match": "a"}, ("a",), ("A", "b", None)),
    "exactly nothing": Case({"exact_match": ""}, ("",), ("a", None)),
    "not exact": Case({"exact_match": "a", "invert_match": True}, ("b",), ("a", None)),
    "expression": Case({"safe_regex_match": {"regex": "a+"}}, ("aa",), ("ab", None)),
    "prefix": Case({"prefix_match": "a"}, ("ab",), ("ba", None)),
    "suffix": Case({"suffix_match": "a"}, ("ba",), ("ab", None)),
    "contains": Case({"contains_match": "a"}, ("bab",), ("b", None)),
    "string": Case({"string_match": {"exact": "A", "ignore_case": True}}, ("a", "A"), ("b", None)),
    "not a string": Case({"string_match": {"prefix": "a"}, "invert_match": True}, ("b",), ("a", None)),
    "range": Case({"range_match": RANGE}, ("-1", "0", "9", "+9"), ("10", "-2", "", "1.0", "one", "9" * 30, None)),
    "not in range": Case({"range_match": RANGE, "invert_match": True}, ("10", "one"), ("0", None)),
    "present": Case({"present_match": True}, ("", "a"), (None,)),
    "absent": Case({"present_match": False}, (None,), ("", "a")),
    "not present": Case({"present_match": True, "invert_match": True}, (None,), ("a",)),
    "not absent": Case({"present_match": False, "invert_match": True}, ("a",), (None,)),
}


@pytest.mark.requirement("RT-2")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_missing_header_matches_only_if_absence_is_required(case: Case) -> None:
    problems = Problems()
    matcher = parse_header_matcher(pb.HeaderMatcher(name="X-Name", **case.fields), problems)
    assert matcher is not None
    assert not problems
    for value in case.yes:
        assert matches_header(matcher, {"x-name": value}.get), value
    for value in case.no:
        assert not matches_header(matcher, {"x-name": value}.get), value


@pytest.mark.requirement("RT-2")
@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"name": "", "exact_match": "a"}, ["name: The header name is empty. Set a name. [NameMissing]"]),
        ({}, ["The header has no matcher. Set one, such as string_match. [MatcherMissing]"]),
        (
            {"prefix_match": ""},
            ["prefix_match: The text is empty and would match every value. Set a text. [MatcherEmpty]"],
        ),
        (
            {"range_match": range_pb2.Int64Range(start=2, end=1)},
            ["range_match: The end 1 is before the start 2. Set an end that is greater than the start. [RangeInvalid]"],
        ),
        (
            {"safe_regex_match": {"regex": "["}},
            ["safe_regex_match.regex: '[' is not an RE2 expression: missing ]: [. Use the RE2 syntax. [RegexInvalid]"],
        ),
        (
            {"string_match": {"prefix": ""}},
            ["string_match.prefix: The text is empty and would match every value. Set a text. [MatcherEmpty]"],
        ),
    ],
)
def test_a_matcher_is_refused(fields: dict[str, Any], want: list[str]) -> None:
    problems = Problems()
    parse_header_matcher(pb.HeaderMatcher(**{"name": "x", **fields}), problems)
    assert [str(each) for each in problems] == want
