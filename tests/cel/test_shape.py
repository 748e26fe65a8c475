"""Which trees mean the same, wherever their parts stand."""

from itertools import combinations
from typing import Final

import pytest
from tests.support.cel.expressions import program

from authplane.cel.syntax.tree_shape import is_same

A, B, C = "identity.a", "identity.b", "identity.c"
SAME: Final = {
    "blanks": (f"{A}==1", f"  {A} ==  1"),
    "groups of and": (f"({A} && {B}) && {C}", f"{A} && ({B} && {C})"),
    "groups of or": (f"({A} || {B}) || {C}", f"{A} || ({B} || {C})"),
    "a member by index": ('identity["a"] == {"a": [1, 2]}', 'identity["a"] == {"a": [1,2]}'),
    "escapes": (f'{A} == "a"', f'{A} == "\\x61"'),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME.keys())
def test_what_means_the_same(one: str, other: str) -> None:
    assert is_same(program(one).tree, program(other).tree)


DIFFERENT: Final = {
    "constants": [f"{A} == {each}" for each in ("1", "1.0", "true", "2", '"1"', 'b"1"', "null", "1u", "-1", "-1.0")],
    "names": [f"has({A})", f"has({B})", f"{A}", f"{B}", f"{A}.a", "has(identity.a.a)", 'request.method == "a"'],
    "operators": [f"{A} {each} {B}" for each in ("==", "!=", "<", "<=", ">", ">=", "&&", "||", "in")] + [f"!{A}"],
    "order": [f"{A} == {B}", f"{B} == {A}", f"{A} && {B} || {C}", f"{A} && ({B} || {C})", f"({A} ? {B} : {C}) == 1"],
    "lists": [f"{A} == {each}" for each in ("[]", "[1]", "[2]", "[1, 2]", "[2, 1]", "[[1], 2]", "{}")],
    "maps": [
        f"{A} == {each}"
        for each in ('{"a": 1}', '{"a": 2}', '{"b": 1}', '{"a": 1, "b": 2}', '{"a": 2, "b": 1}', '{"b": 2, "a": 1}')
    ],
    "functions": [
        'request.path.startsWith("a")',
        'request.path.endsWith("a")',
        'request.host.startsWith("a")',
        'request.path.startsWith("b")',
        f"size({A}) == 1",
        f"int({A}) == 1",
    ],
}


@pytest.mark.parametrize("texts", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_what_differs(texts: list[str]) -> None:
    trees = [program(each).tree for each in texts]
    assert [
        (one, other)
        for (one, first), (other, second) in combinations(zip(texts, trees, strict=True), 2)
        if is_same(first, second)
    ] == []
    assert all(is_same(each, program(text).tree) for text, each in zip(texts, trees, strict=True))


def test_loops_are_never_the_same() -> None:
    loop = program(f"{A}.exists(x, x == 1)").tree
    assert not is_same(loop, loop)
