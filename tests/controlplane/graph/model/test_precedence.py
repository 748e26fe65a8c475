"""Which of two routes that match the same request takes it, as Contour decides."""

from typing import Final, NamedTuple

import pytest
from tests.support.resources.contour_documents import PROXY, world

from authplane.controlplane.graph.model.match_words import match_words

ROUTES: Final = "  routes:\n  - services:\n    - {name: echo, port: 80}\n"
HEADERS: Final = ("exact: a", "regex: a", "contains: a", "present: true")
QUERIES: Final = ("exact: a", "regex: a", "prefix: a", "suffix: a", "contains: a", "present: true")


def words_of(*conditions: str, policy: str = "", more: str = "") -> list[str]:
    """Return the routes of a host in their order."""
    routes = "".join(
        f"  - {{conditions: [{each}], services: [{{name: echo, port: 80}}]{policy if number == 0 else ''}}}\n"
        for number, each in enumerate(conditions)
    )
    made = world(proxy=PROXY.replace(ROUTES, f"  routes:\n{routes}{more}"))
    assert made.problems("HTTPProxy") == []
    secure = made.secure()
    assert secure is not None
    return [match_words(route.match) for route in secure.host.routes]


def header(test: str, name: str = "x") -> str:
    return f"{{header: {{name: '{name}', {test}}}}}"


def query(test: str) -> str:
    return f"{{queryParameter: {{name: q, {test}}}}}"


class Pair(NamedTuple):
    first: str
    then: str


PAIRS: Final = {
    **{
        f"header {one}, {other}": Pair(f"{{prefix: /x}}, {header(one)}", f"{{prefix: /x}}, {header(other)}")
        for number, one in enumerate(HEADERS)
        for other in HEADERS[number + 1 :]
    },
    **{
        f"query {one}, {other}": Pair(f"{{prefix: /x}}, {query(one)}", f"{{prefix: /x}}, {query(other)}")
        for number, one in enumerate(QUERIES)
        for other in QUERIES[number + 1 :]
    },
    "of headers the name": Pair(
        f"{{prefix: /x}}, {header('present: true', 'a')}", f"{{prefix: /x}}, {header('exact: a', 'b')}"
    ),
    "a method before any number of headers": Pair(
        f"{{prefix: /x}}, {header('exact: GET', ':method')}",
        f"{{prefix: /x}}, {header('exact: a')}, {header('exact: b', 'y')}, {header('exact: c', 'z')}",
    ),
    "more headers beside a method": Pair(
        f"{{prefix: /x}}, {header('exact: GET', ':method')}, {header('present: true')}",
        f"{{prefix: /x}}, {header('exact: GET', ':method')}",
    ),
    "headers before queries": Pair(
        f"{{prefix: /x}}, {header('present: true')}", f"{{prefix: /x}}, {query('exact: a')}"
    ),
    "patterns of one length downwards": Pair("{regex: '/a.*'}", "{regex: '/.*c'}"),
    "the longer pattern": Pair("{regex: '/.*cd'}", "{regex: '/a.*'}"),
    "one that ignores no case": Pair(
        f"{{prefix: /x}}, {header('exact: a')}", f"{{prefix: /x}}, {header('exact: a, ignoreCase: true')}"
    ),
    "one that is not inverted": Pair(
        f"{{prefix: /x}}, {header('exact: a')}", f"{{prefix: /x}}, {header('notexact: a')}"
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_the_order_of_routes_that_tie_is_contours(pair: Pair) -> None:
    want = [words_of(pair.first)[0], words_of(pair.then)[0]]
    assert words_of(pair.first, pair.then) == words_of(pair.then, pair.first) == want


REWRITE: Final = ", pathRewritePolicy: {replacePrefix: [{replacement: /v1}]}"


def test_a_route_that_is_added_for_a_rewrite_does_not_outrank_one_that_is_written() -> None:
    found = words_of("{prefix: /api}", f"{{prefix: /api}}, {header('present: true', 'x-admin')}", policy=REWRITE)
    assert found == ["/api[x-admin present]", "/api/", "/api"]


def test_a_longer_route_that_is_written_stays_before_the_one_that_is_added() -> None:
    found = words_of("{prefix: /api}", "{prefix: /api/x}", f"{{prefix: /api/}}, {query('exact: a')}", policy=REWRITE)
    assert found[0] == "/api/x"
    assert found[-2:] == ["/api/", "/api"]


def test_a_rewritten_prefix_with_a_slash_covers_the_path_without_it() -> None:
    assert words_of("{prefix: /a/}", "{prefix: /}", policy=REWRITE) == ["/a/", "/a", "/"]


@pytest.mark.parametrize("beside", ["{prefix: /a}", f"{{prefix: /a}}, {header('present: true')}"])
def test_it_does_not_where_that_path_is_written(beside: str) -> None:
    assert words_of("{prefix: /a/}", beside, policy=REWRITE) == words_of("{prefix: /a/}", beside)
