"""Expressions can be written back as text; bytes that are no expression are refused."""

import pytest
from tests.support.cel.expressions import program

from authplane.cel.syntax.source_text import render_text
from authplane.cel.wire.expressions import parse_tree

SAME = [
    'request.path == "/"',
    '!(identity.a == "b" || identity.c) && identity.d',
    "identity.a || identity.b && identity.c",
    "(identity.a || identity.b) && identity.c",
    "identity.a - (identity.b - identity.c) == 1.0",
    "(identity.a - identity.b) * -identity.c == 1.5",
    "(identity.a ? identity.b : identity.c) ? true : identity.d ? false : true",
    'identity.a in ["x", "y"]',
    'has(identity.a.b) && identity["c d"].e[0] == null',
    'identity.a.exists(x, x.b == "c") && identity.a.all(x, x == 1u)',
    "identity.a.exists_one(x, x > 1.0)",
    "identity.a.map(x, x + 1.0) == identity.a.filter(x, x != 2.0)",
    "identity.a.map(x, x > 1.0, x + 1.0) == []",
    '{"a": 1, "b": 2} == identity.m',
    "size(identity.a) == 1 && identity.a.size() == 1 && type(identity.a) == string",
    r'request.path.matches("^/\\d+\"$")',
    'b"\\x00\\xff" == bytes(identity.a)',
    'timestamp("2026-01-01T00:00:00Z") < request.time',
    '"\\U0000000a" == identity.a',
    "-1 < identity.a && 1e+20 > identity.b",
    "!identity.a == false",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_an_expression_is_written_as_it_was(text: str) -> None:
    assert render_text(program(text).tree) == text


def test_needless_parentheses_are_left_out() -> None:
    assert render_text(program("((identity.a) == ('b')) && ((true))").tree) == 'identity.a == "b" && true'


@pytest.mark.parametrize("data", [b"", b"\xff", b"\n\x03abc", b"\x0a\x28type.googleapis.com/cel.expr.CheckedExpr"])
def test_other_bytes_are_no_expression(data: bytes) -> None:
    assert parse_tree(data) is None
