"""Conditions of routes and includes, and how they join."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authplane.controlplane.graph.httpproxy.route_conditions import (
    EVERYTHING,
    Conditions,
    include_conditions,
    joined,
    match_of,
    route_match,
)
from authplane.controlplane.graph.model.canonical_paths import path_problem
from authplane.controlplane.graph.model.envoy_regexes import LARGEST_PROGRAM, regex_problem
from authplane.controlplane.graph.model.match_model import (
    Exact,
    HeaderMatch,
    Match,
    PathMatch,
    Prefix,
    QueryMatch,
    Regex,
    TextTest,
)
from authplane.controlplane.graph.model.match_words import match_words
from authplane.core.problems import Problems
from authplane.resources.kinds.contour_policies import HeaderCondition, MatchCondition, QueryParameterCondition


def header(**fields: Any) -> MatchCondition:
    return MatchCondition(header=HeaderCondition(name="X-User", **fields))


def query(**fields: Any) -> MatchCondition:
    return MatchCondition(query_parameter=QueryParameterCondition(name="debug", **fields))


def said(problems: Problems) -> list[tuple[str, str]]:
    return [(problem.reason, problem.message) for problem in problems.errors]


class Join(NamedTuple):
    above: str | None
    below: PathMatch | None
    want: PathMatch


JOINS = {
    "nothing is everything": Join(None, None, Prefix("/")),
    "only the include has a path": Join("/a", None, Prefix("/a")),
    "only the route has a path": Join(None, Prefix("/b"), Prefix("/b")),
    "one after the other": Join("/a", Prefix("/b"), Prefix("/a/b")),
    "slashes are not doubled": Join("/a/", Prefix("/b"), Prefix("/a/b")),
    "a slash is a path": Join("/a", Prefix("/"), Prefix("/a/")),
    "two slashes are one": Join("/", Prefix("/"), Prefix("/")),
    "the include may be a slash": Join("/", Prefix("/b"), Prefix("/b")),
    "an exact path stays exact": Join("/a", Exact("/b"), Exact("/a/b")),
    "a pattern stands in a group": Join("/a", Regex("/b|/c"), Regex("/a(?:/b|/c)")),
    "the prefix of a pattern is literal": Join("/a.b", Regex("/c"), Regex(r"/a\.b(?:/c)")),
    "a pattern below a slash is left alone": Join("/", Regex("/b|/c"), Regex("/b|/c")),
}


@pytest.mark.parametrize("case", JOINS.values(), ids=JOINS.keys())
def test_the_paths_of_includes_and_routes_are_put_together(case: Join) -> None:
    above = Conditions(path=Prefix(case.above) if case.above else None)
    assert match_of(joined(above, Conditions(path=case.below))) == Match(path=case.want)


SEGMENTS = st.lists(st.text("ab.", min_size=1, max_size=3).filter(lambda text: text.strip(".")), min_size=1, max_size=3)


@given(blocks=st.lists(SEGMENTS.map(lambda parts: "/" + "/".join(parts)), min_size=1, max_size=4), slash=st.booleans())
def test_canonical_paths_join_to_a_canonical_path(blocks: list[str], slash: bool) -> None:
    found = EVERYTHING
    for block in blocks:
        found = joined(found, Conditions(path=Prefix(block + "/" * slash)))
    path = match_of(found).path
    assert path_problem(path.path) == ""
    assert path.path.startswith(blocks[0])


HEADERS = {
    "present": (header(present=True), HeaderMatch(name="x-user", test=TextTest.PRESENT)),
    "notpresent": (header(notpresent=True), HeaderMatch(name="x-user", test=TextTest.PRESENT, inverted=True)),
    "contains": (header(contains="a"), HeaderMatch(name="x-user", test=TextTest.CONTAINS, text="a")),
    "notcontains": (
        header(notcontains="a"),
        HeaderMatch(name="x-user", test=TextTest.CONTAINS, text="a", inverted=True),
    ),
    "exact": (header(exact="a"), HeaderMatch(name="x-user", test=TextTest.EXACT, text="a")),
    "exact in any case": (
        header(exact="a", ignore_case=True),
        HeaderMatch(name="x-user", test=TextTest.EXACT, text="a", ignore_case=True),
    ),
    "notexact, and missing is empty": (
        header(notexact="a", treat_missing_as_empty=True),
        HeaderMatch(name="x-user", test=TextTest.EXACT, text="a", inverted=True, missing_is_empty=True),
    ),
    "regex": (header(regex="a+"), HeaderMatch(name="x-user", test=TextTest.REGEX, text="a+")),
}


@pytest.mark.parametrize(("written", "want"), HEADERS.values(), ids=HEADERS.keys())
def test_a_header_is_tested_in_seven_ways(written: MatchCondition, want: HeaderMatch) -> None:
    problems = Problems()
    assert route_match(EVERYTHING, [written], problems) == Match(path=Prefix("/"), headers=(want,))
    assert list(problems) == []


QUERIES = {
    "present": (query(present=True), QueryMatch(name="debug", test=TextTest.PRESENT)),
    "exact": (
        query(exact="a", ignore_case=True),
        QueryMatch(name="debug", test=TextTest.EXACT, text="a", ignore_case=True),
    ),
    "prefix": (query(prefix="a"), QueryMatch(name="debug", test=TextTest.PREFIX, text="a")),
    "suffix": (query(suffix="a"), QueryMatch(name="debug", test=TextTest.SUFFIX, text="a")),
    "contains": (query(contains="a"), QueryMatch(name="debug", test=TextTest.CONTAINS, text="a")),
    "regex": (query(regex="a+"), QueryMatch(name="debug", test=TextTest.REGEX, text="a+")),
}


@pytest.mark.parametrize(("written", "want"), QUERIES.values(), ids=QUERIES.keys())
def test_a_parameter_is_tested_in_six_ways(written: MatchCondition, want: QueryMatch) -> None:
    problems = Problems()
    assert route_match(EVERYTHING, [written], problems) == Match(path=Prefix("/"), query=(want,))
    assert list(problems) == []


@pytest.mark.parametrize(
    "written",
    [
        header(regex="a", ignore_case=True),
        header(exact="a", treat_missing_as_empty=True),
        query(present=True, ignore_case=True),
    ],
)
def test_what_has_no_effect_is_named(written: MatchCondition) -> None:
    problems = Problems()
    assert route_match(EVERYTHING, [written], problems) is not None
    assert [problem.reason for problem in problems.warnings] == ["IgnoredField"]


HEADER_X = HeaderMatch(name="x", test=TextTest.PRESENT, text="")
TOGETHER: dict[str, tuple[list[MatchCondition], Match]] = {
    "nothing": ([MatchCondition()], Match(path=Prefix("/"))),
    "empty texts": ([MatchCondition(prefix="", exact="", regex="")], Match(path=Prefix("/"))),
    "a path and a header": (
        [MatchCondition(prefix="/a", header=HeaderCondition(name="x", present=True))],
        Match(path=Prefix("/a"), headers=(HEADER_X,)),
    ),
    "an exact path and another condition": (
        [MatchCondition(exact="/a"), MatchCondition(header=HeaderCondition(name="x", present=True))],
        Match(path=Exact("/a"), headers=(HEADER_X,)),
    ),
    "all three": (
        [
            MatchCondition(
                exact="/a",
                header=HeaderCondition(name="x", present=True),
                query_parameter=QueryParameterCondition(name="q", present=True),
            )
        ],
        Match(path=Exact("/a"), headers=(HEADER_X,), query=(QueryMatch(name="q", test=TextTest.PRESENT, text=""),)),
    ),
}


@pytest.mark.parametrize(("written", "want"), TOGETHER.values(), ids=TOGETHER.keys())
def test_one_condition_may_contain_several_or_none(written: list[MatchCondition], want: Match) -> None:
    problems = Problems()
    assert route_match(EVERYTHING, written, problems) == want
    assert not problems


PATH, HEADER, QUERY = (
    "PathMatchConditionsNotValid",
    "HeaderMatchConditionsNotValid",
    "QueryParameterMatchConditionsNotValid",
)
TWO_PATHS = "route: more than one prefix, exact or regex is not allowed in a condition block. Remove all but one."
PRESENT = (
    "cannot specify contradictory 'present' and 'notpresent' conditions for the same route and "
    "header. Remove one of them."
)
EXACT = (
    "cannot specify contradictory 'exact' and 'notexact' conditions for the same route and header. Remove one of them."
)
CONTAINS = (
    "cannot specify contradictory 'contains' and 'notcontains' conditions for the same route "
    "and header. Remove one of them."
)
DUPLICATE = "cannot specify duplicate header 'exact match' conditions in the same route. Remove one of them."
DUPLICATE_QUERY = (
    "cannot specify duplicate query parameter 'exact match' conditions in the same route. Remove one of them."
)
ONE_TEST = (
    "The condition on header 'X-User' does not have exactly one test. Set one of present, "
    "notpresent, contains, notcontains, exact, notexact and regex."
)
BAD: dict[str, tuple[list[MatchCondition], list[tuple[str, str]]]] = {
    "two paths in one": ([MatchCondition(prefix="/a", exact="/b")], [(PATH, TWO_PATHS)]),
    "two paths": ([MatchCondition(prefix="/a"), MatchCondition(exact="/b")], [(PATH, TWO_PATHS)]),
    "a prefix without slash": (
        [MatchCondition(prefix="a")],
        [(PATH, "route: prefix conditions must start with /, a was supplied. Add a slash in front.")],
    ),
    "an exact path without slash": (
        [MatchCondition(exact="a")],
        [(PATH, "route: exact conditions must start with /, a was supplied. Add a slash in front.")],
    ),
    "a pattern without slash": (
        [MatchCondition(regex=".*")],
        [(PATH, "route: regex conditions must start with /, .* was supplied. Add a slash in front.")],
    ),
    "a pattern that is none": (
        [MatchCondition(regex="/(a")],
        [
            (
                PATH,
                "route: supplied regex: /(a invalid. error: is not a regular expression of RE2: "
                "missing ): /(a. Correct it.",
            )
        ],
    ),
    "a path that no request has": (
        [MatchCondition(prefix="/a/../b")],
        [
            (
                PATH,
                "route: the path '/a/../b' has a segment . or .., which Envoy resolves before it "
                "matches routes. Write the resolved path.",
            )
        ],
    ),
    "a header without a test": ([header()], [(HEADER, ONE_TEST)]),
    "a header that need not be present": ([header(present=False)], [(HEADER, ONE_TEST)]),
    "a header with two tests": ([header(present=True, exact="a")], [(HEADER, ONE_TEST)]),
    "present and not": ([header(present=True), header(notpresent=True)], [(HEADER, PRESENT)]),
    "exact and not": ([header(notexact="a"), header(exact="a")], [(HEADER, EXACT)]),
    "contains and not": ([header(contains="a"), header(notcontains="a")], [(HEADER, CONTAINS)]),
    "two exact values": ([header(exact="a"), header(exact="b")], [(HEADER, DUPLICATE)]),
    "a header's bad pattern": (
        [header(regex="(?=a)")],
        [
            (
                HEADER,
                "invalid regular expression specified for 'regex' condition: it is not a regular "
                "expression of RE2: invalid perl operator: (?=. Correct it.",
            )
        ],
    ),
    "a name that is none": (
        [MatchCondition(header=HeaderCondition(name="x user", present=True))],
        [(HEADER, "'x user' is not a header name. Use letters, digits and hyphens.")],
    ),
    "a value with a line break": (
        [header(exact="a\nb")],
        [(HEADER, "'a\\nb' cannot occur in a request. Use printable characters.")],
    ),
    "a parameter without a test": (
        [query()],
        [(QUERY, "must specify at least one query parameter condition. Add one.")],
    ),
    "a parameter with two tests": (
        [query(exact="a", prefix="b")],
        [(QUERY, "cannot specify more than one condition in the same match condition branch. Remove all but one.")],
    ),
    "two exact parameters": ([query(exact="a"), query(exact="b")], [(QUERY, DUPLICATE_QUERY)]),
}


@pytest.mark.parametrize(("written", "want"), BAD.values(), ids=BAD.keys())
def test_conditions_that_cannot_be_used_are_an_error(
    written: list[MatchCondition], want: list[tuple[str, str]]
) -> None:
    problems = Problems()
    assert route_match(EVERYTHING, written, problems) is None
    assert said(problems) == want


def test_what_includes_ask_for_can_contradict_the_route() -> None:
    problems = Problems()
    above = include_conditions([header(present=True)], problems)
    assert above is not None
    assert route_match(above, [header(notpresent=True)], problems) is None
    assert said(problems) == [(HEADER, PRESENT)]


@pytest.mark.parametrize(
    ("field", "written"), [("exact", MatchCondition(exact="/a")), ("regex", MatchCondition(regex="/a"))]
)
def test_an_include_has_only_a_prefix(field: str, written: MatchCondition) -> None:
    problems = Problems()
    assert include_conditions([written], problems) is None
    assert said(problems) == [(PATH, f"include: {field} conditions are not allowed in includes block. Use prefix.")]


def test_conditions_are_the_same_in_any_order_and_number() -> None:
    written = [header(present=True), query(present=True), MatchCondition(header=HeaderCondition(name="a", exact="b"))]
    one = route_match(EVERYTHING, written, Problems())
    two = route_match(EVERYTHING, [*reversed(written), header(present=True)], Problems())
    assert one is not None
    assert one == two


REFUSED = [
    "(",
    ")",
    "a)|(b",
    r"\Q",
    r"a\Q)|(?:b",
    "a{1001}",
    "(?=a)",
    r"\1",
    "é",
    "a\nb",
    "a" * 5000,
]


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_pattern_that_envoy_would_refuse_or_read_differently_in_a_group_is_refused(pattern: str) -> None:
    assert regex_problem(pattern) != ""


def test_a_pattern_is_counted_as_envoy_counts_it() -> None:
    assert regex_problem(f"/.{{{LARGEST_PROGRAM // 2 - 5}}}") == ""
    assert "more than the limit of" in regex_problem(f"/.{{{LARGEST_PROGRAM // 2 + 5}}}")


def test_a_pattern_that_its_prefix_makes_too_large_is_refused() -> None:
    problems = Problems()
    above = Conditions(path=Prefix("/" + "a" * 1000))
    assert route_match(above, [MatchCondition(regex="/b")], problems) is None
    assert [reason for reason, _ in said(problems)] == [PATH]


WORDS = st.text('ab[]"=~ ,', min_size=1, max_size=4)
MATCHES = st.builds(
    Match,
    path=st.one_of(st.builds(Prefix, st.just("/a")), st.builds(Exact, st.just("/a")), st.builds(Regex, WORDS)),
    headers=st.lists(
        st.builds(
            HeaderMatch,
            name=st.sampled_from("ab"),
            test=st.sampled_from([TextTest.EXACT, TextTest.CONTAINS]),
            text=WORDS,
            inverted=st.booleans(),
            ignore_case=st.booleans(),
        ),
        max_size=2,
    ).map(lambda found: tuple(sorted(set(found)))),
    query=st.lists(st.builds(QueryMatch, name=WORDS, test=st.just(TextTest.EXACT), text=WORDS), max_size=1).map(tuple),
)


@given(one=MATCHES, two=MATCHES)
def test_different_matches_have_different_words(one: Match, two: Match) -> None:
    assert (match_words(one) == match_words(two)) == (one == two)
