"""Which parts of expressions are told by checks, and which stay expressions."""

from typing import Final

import pytest
from tests.support.cel.expressions import program

from authplane.cel.envoy.envoy_attributes import METHOD, SUBJECT
from authplane.cel.envoy.plain_paths import CANONICAL_CHECK
from authplane.cel.envoy.request_checks import (
    ALWAYS,
    PRESENT,
    Begins,
    Check,
    Equals,
    Header,
    Lists,
    Metadata,
    Not,
    Path,
    Some,
    every,
)
from authplane.cel.envoy.shortcuts import shorten
from authplane.cel.envoy.translate import NOBODY, Claims, Condition, Members, Who, translate
from authplane.cel.syntax.source_text import render_text
from authplane.core.envoy_releases import CURRENT

KEPT: Final = "envoy.filters.http.jwt_authn"
CALLED: Final = Metadata(METHOD, (Equals("tools/call"),))
READ: Final = Metadata(SUBJECT, (Begins("read_"),))
ISSUER: Final = Claims("i")
GROUP: Final = f'metadata.filter_metadata["{KEPT}"]["i"]["group"]'


def claim(*keys: str) -> tuple[str, ...]:
    return (KEPT, "i", *keys)


CASES: Final[dict[str, tuple[str, Who, Check, str]]] = {
    "a claim": ('identity.group == "admin"', ISSUER, Metadata(claim("group"), (Equals("admin"),)), "true"),
    "a claim of several": (
        'identity.a.b in ["x", "y"]', ISSUER, Metadata(claim("a", "b"), (Equals("x"), Equals("y"))), "true",
    ),
    "a claim that is there": (
        "has(identity.group)",
        ISSUER,
        Some((Metadata(claim("group"), (PRESENT,)), Metadata((KEPT, "i"), (Lists("group"),)))),
        "true",
    ),
    "a member of a list or a map": (
        '"admin" in identity.groups',
        ISSUER,
        Some((Metadata(claim("groups", "admin"), (PRESENT,)), Metadata(claim("groups"), (Lists("admin"),)))),
        "true",
    ),
    "another claim": (
        'identity.group != "admin"',
        ISSUER,
        every((Metadata(claim("group"), (PRESENT,)), Not(Metadata(claim("group"), (Equals("admin"),))))),
        "true",
    ),
    "a tool and a claim": (
        'request.mcp.tool_name.startsWith("read_") && identity.group == "admin"',
        ISSUER,
        every((CALLED, READ, Metadata(claim("group"), (Equals("admin"),)))),
        "true",
    ),
    "one or the other": (
        'request.method == "GET" || identity.group == "admin"',
        ISSUER,
        Some((Header(":method", Equals("GET")), Metadata(claim("group"), (Equals("admin"),)))),
        "true",
    ),
    "a path": ('request.path == "/a"', NOBODY, every((CANONICAL_CHECK, Path(Equals("/a")))), "true"),
    "what no check tells stays": (
        'request.method == "GET" && identity.level > 3.0',
        ISSUER,
        Header(":method", Equals("GET")),
        f'metadata.filter_metadata["{KEPT}"]["i"]["level"] > 3.0',
    ),
    "what is turned round stays": (
        '!(identity.group == "admin")', ISSUER, ALWAYS, f'!({GROUP} == "admin")',
    ),
    "one of which no check tells the other stays": (
        'identity.group == "admin" || size(request.method) == 3',
        ISSUER,
        ALWAYS,
        f'{GROUP} == "admin" || size(request.method) == 3',
    ),
    "who is known stays": (
        'identity.spiffe_id == "a"', Members((("spiffe_id", "a"),)), ALWAYS, '{"spiffe_id": "a"}["spiffe_id"] == "a"',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "who", "check", "left"), CASES.values(), ids=CASES.keys())
def test_what_matchers_tell_is_a_check(text: str, who: Who, check: Check, left: str) -> None:
    made = translate(program(text), who, CURRENT)
    assert isinstance(made, Condition), made
    short = shorten(made)
    assert (short.check, render_text(short.tree)) == (check, left)
    assert short.reads_mcp == made.reads_mcp
