"""The precedence of routes."""

from typing import Final, TypeAlias, assert_never

from authplane.controlplane.graph.model.match_model import (
    Exact,
    HeaderMatch,
    Match,
    PathMatch,
    Prefix,
    QueryMatch,
    Regex,
    Segments,
    TextTest,
)

METHOD: Final = ":method"
_HEADER_TESTS: Final = (
    TextTest.EXACT,
    TextTest.REGEX,
    TextTest.CONTAINS,
    TextTest.PREFIX,
    TextTest.SUFFIX,
    TextTest.PRESENT,
)
"""As Contour ranks them; it has no prefixes and suffixes of headers."""
_QUERY_TESTS: Final = (
    TextTest.EXACT,
    TextTest.REGEX,
    TextTest.PREFIX,
    TextTest.SUFFIX,
    TextTest.CONTAINS,
    TextTest.PRESENT,
)

_Headers: TypeAlias = tuple[tuple[str, int, str, bool, bool, bool], ...]
_Queries: TypeAlias = tuple[tuple[str, int, str, bool], ...]
Precedence: TypeAlias = tuple[int, int, tuple[int, ...], bool, int, int, _Headers, _Queries, _Headers]


def proxy_precedence(match: Match) -> Precedence:
    """Sort the routes of an HTTPProxy as Contour does.

    Exact paths come first, then patterns, then prefixes; longer ones before shorter ones, and of patterns of the same
    length those that are later in the alphabet. Of one path, routes with a condition on the method come first, then
    those with more conditions on headers, then on the query; names and kinds of the tests decide about the rest.
    """
    path = match.path.path
    method = [each for each in match.headers if each.name == METHOD]
    others = [each for each in match.headers if each.name != METHOD]
    return (
        path_rank(match.path),
        -len(path),
        tuple(-ord(each) if isinstance(match.path, Regex) else ord(each) for each in path),
        not method,
        -len(others),
        -len(match.query),
        tuple(sorted(map(_header, others))),
        tuple(sorted(map(_query, match.query))),
        tuple(sorted(map(_header, method))),
    )


def path_rank(path: PathMatch) -> int:
    """Sort exact paths first, then patterns, then prefixes."""
    match path:
        case Exact():
            return 0
        case Regex():
            return 1
        case Prefix() | Segments():
            return 2
        case _:
            assert_never(path)


def _header(each: HeaderMatch) -> tuple[str, int, str, bool, bool, bool]:
    rank = _HEADER_TESTS.index(each.test)
    return each.name, rank, each.text, each.ignore_case, each.inverted, each.missing_is_empty


def _query(each: QueryMatch) -> tuple[str, int, str, bool]:
    return each.name, _QUERY_TESTS.index(each.test), each.text, each.ignore_case
