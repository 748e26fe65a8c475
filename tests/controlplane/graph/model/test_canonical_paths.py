"""Paths that a proxy could match."""

import pytest

from authplane.controlplane.graph.model.canonical_paths import path_problem

GOOD = [
    "/",
    "/a",
    "/a/",
    "/a.b/c-d_e~f",
    "/a%20b",
    "/%E2%82%AC",
    "/!$&'()*+,;=:@",
    "/.well-known/x",
    "/..a/b..",
    "/a%25",
]
BAD = [
    "",
    "a",
    "/a?b",
    "/a#b",
    "/a//b",
    "//",
    "/a/./b",
    "/a/..",
    "/..",
    "/a b",
    "/a|b",
    "/a\\b",
    "/\u00e9",
    "/a%2fb",
    "/a%2Fb",
    "/a%5Cb",
    "/%73ecret",
    "/a%c3%a9",
    "/a%",
    "/a%2",
    "/a%zz",
    "/a\n",
    "/a\0",
    '/a"b',
    "/a<b",
    "/a^b",
    "/a`b",
    "/a{b}",
    "/%7Ea",
]


@pytest.mark.parametrize("path", GOOD)
def test_canonical_paths_are_fine(path: str) -> None:
    assert path_problem(path) == ""


@pytest.mark.parametrize("path", BAD)
def test_what_no_request_could_match_is_named(path: str) -> None:
    assert path_problem(path) != ""
