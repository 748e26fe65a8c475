"""Envoy takes every condition of ours, and answers as our evaluator does."""

import json
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from tests.cel.envoy.test_translate import REFUSED, TRANSLATED
from tests.support.cel.expressions import program
from tests.support.envoy.answered_conditions import Sent, answering, bootstrap
from tests.support.envoy.validation import validate
from tests.support.issuers.minting import ISSUER
from tests.support.mcp.lua_reader import LuaReader

from authplane.cel.check.expression_outcome import Holds
from authplane.cel.check.program import Program
from authplane.cel.check.regex_patterns import pattern_size
from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.fitness import DEEPEST, LARGEST_PATTERN
from authplane.cel.envoy.request_checks import ALWAYS
from authplane.cel.envoy.shortcuts import shorten
from authplane.cel.envoy.translate import NOBODY, Claims, Condition, Who, translate
from authplane.cel.envoy.wire import render_condition
from authplane.cel.syntax.tree import Node
from authplane.core.envoy_releases import CURRENT

pytestmark = pytest.mark.real

EXPRESSIONS: Final = 260
SHORT: Final = 60
READER: Final = LuaReader()
ARGUMENTS: Final = ("a", "to")
REQUESTS: Final = 4
"""So many of the requests below are sent for each expression."""

ATOMS: Final = (
    'request.method == "POST"', 'request.method in ["GET", "PUT"]', 'request.method < "H"', "size(request.method) == 4",
    'request.path == "/mcp"', 'request.path != "/mcp"', 'request.path.startsWith("/a")', "has(request.path)",
    'request.url_path.matches("^/[a-m]+$")', 'request.host == "shop.test"', 'request.query == ""',
    'request.query.contains("x=")', 'request.headers["x-a"] == "a"', 'request.headers["x-a"] != "a"',
    'request.headers["x-a"] == "a,b"', 'size(request.headers["x-a"]) == 1', '"x-a" in request.headers',
    "has(request.headers.accept)", 'request.headers["x-b"].matches("^[0-9]+$")', 'int(request.headers["x-b"]) > 5',
    'request.headers["x-a"] in ["a", "é"]', 'bool(request.headers["x-b"])', 'request.headers["x-a"] + "!" == "a!"',
    'string(size(request.headers["x-a"])) == request.headers["x-b"]', "request.time.getFullYear() > 2000",
    'request.time < timestamp("2020-01-01T00:00:00Z")', 'request.time - duration("1h") < request.time',
    'request.method == ""', '"/abc" == request.path', 'request.mcp.method in ["ping", "tools/list"]',
    'request.mcp.method.startsWith("__")', 'request.mcp.method == "__jsonrpc_response"',
    'request.mcp.method == "tools/call"', 'request.mcp.method != "tools/call"', "has(request.mcp.method)",
    'request.mcp.tool_name.startsWith("read_")', 'request.mcp.tool_name != "read_x"', "has(request.mcp.tool_name)",
    "request.mcp.params.a == 1", "request.mcp.params.a > 0.5", "has(request.mcp.params.a)",
    'request.mcp.params.to in ["alice", "bob"]', 'request.mcp.params.to.startsWith("a")',
    'request.mcp.params.to != "alice"', 'request.mcp.params.to.matches("^[a-é]+$")',
    "request.mcp.params.to == request.mcp.params.a", "type(request.mcp.params.a) == double",
)  # fmt: skip
ABOUT_CLAIMS: Final = (
    'identity.group == "admin"', 'identity.group != "admin"', '"admin" in identity.group', "has(identity.group)",
    "identity.level > 3", "identity.level == 4", "identity.level + 1.5 > 5.0", "type(identity.level) == double",
    "type(identity.group) == string", "type(identity.group) == list", "identity.group == null", "identity.flag",
    "size(identity.group) == 5", "identity.nested.a[0] == 1", 'identity.nested["a"] == [1, 2]', '"group" in identity',
    "has(identity.nested.a)", "identity.nested == {}", 'identity["https://ns/c"] == "x"',
    'identity.group.matches("^(admin|staff)$")', "identity.group == request.mcp.tool_name",
    'identity.aud == "shop"', '"shop" in identity.aud', "identity.level >= identity.nested.b",
    'identity.group in ["admin", "staff"]', 'identity.nested.group.startsWith("a")', '"a" in identity.nested',
    'identity.group == ""', '"" in identity.group', 'identity[""] == "a"',
    "int(identity.level) % 2 == 0", "dyn(identity.flag) == true",
)  # fmt: skip
CLAIMS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"group": "admin", "level": 4, "flag": True, "aud": "shop"},
    {"group": ["admin", "a"], "level": 2.5, "flag": "true", "nested": {"a": [1, 2], "b": 2}, "aud": ["shop", "x"]},
    {"group": None, "level": "4", "nested": {}, "https://ns/c": "x"},
    {"group": {"admin": 1}, "level": 2**53, "flag": False, "nested": {"a": ["1"], "b": 1e300}},
    {"group": "staff", "level": -1, "nested": [1, 2]},
)


def rpc(method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


BODIES: Final = (
    "",
    rpc("tools/call", name="read_x", arguments={}),
    rpc("tools/call", name="admin", arguments={}),
    rpc("tools/call", name="read_x", arguments={"a": 1, "to": "alice"}),
    rpc("tools/call", name="read_x", arguments={"a": -0.0, "to": "é", "more": [{}]}),
    rpc("tools/call", name="admin", arguments={"a": "1", "to": True}),
    rpc("tools/call", name="admin", arguments={"A": 1}),
    rpc("tools/list"),
    rpc("prompts/get", name="read_x"),
    json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}),
)
PATHS: Final = ("/mcp", "/abc", "/abc/", "/a//b", "/a/../b", "/a%2fb", "/a%20b", "/mcp?x=1", "/a;b", "/", "/a/.b?x=%ff")
HEADERS: Final[tuple[tuple[tuple[str, str | bytes], ...], ...]] = (
    (),
    (("x-a", "a"), ("x-b", "7")),
    (("X-A", "a"), ("x-a", "b"), ("x-b", "true")),
    (("x-a", "é"), ("x-b", "1")),
    (("x-a", b"\xff"),),
    (("x-a", ""), ("x-b", "0")),
)


def expression(chance: Random, atoms: tuple[str, ...], depth: int) -> str:
    """Write an expression at random."""
    if depth == 0 or chance.random() < 0.2:
        return chance.choice(atoms)
    one, other, third = (expression(chance, atoms, depth - 1) for _ in range(3))
    return chance.choice((f"({one} && {other})", f"({one} || {other})", f"!({one})", f"({third} ? {one} : {other})"))


def requests(chance: Random, *, claims: bool) -> list[Sent]:
    return [
        Sent(
            method="POST" if body else chance.choice(("GET", "PUT", "POST")),
            path=chance.choice(PATHS),
            headers=chance.choice(HEADERS),
            body=body,
            claims=chance.choice(CLAIMS) if claims else None,
        )
        for body in chance.choices(BODIES, k=REQUESTS)
    ]


def ours(checked: Program, sent: Sent) -> bool:
    case = sent.case()
    return isinstance(case.evaluate(checked, case.lookup(sent.identity())), Holds)


def is_plain(sent: Sent) -> bool:
    headers = [(name.lower(), _shown(value)) for name, value in sent.all_headers() if name != "host"]
    return READER.read(sent.method, headers, sent.path, sent.body.encode(), ARGUMENTS) is not None


def _shown(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="surrogateescape")


def condition(text: str, who: Who) -> Condition:
    made = translate(program(text), who, CURRENT)
    assert isinstance(made, Condition), (text, made)
    return made


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R53")
@pytest.mark.requirement("R56")
async def test_envoy_gives_our_answers(tmp_path: Path) -> None:
    chance = Random(8)  # noqa: S311 (the same cases every time)
    asked: list[tuple[str, bool]] = [(text, text in ABOUT_CLAIMS) for text in (*ATOMS, *ABOUT_CLAIMS)]
    asked += [(expression(chance, ATOMS, 2), False) for _ in range(EXPRESSIONS // 2)]
    asked += [(expression(chance, ATOMS + ABOUT_CLAIMS, 2), True) for _ in range(EXPRESSIONS // 2)]
    asked += [(chance.choice((" && ", " || ")).join(chance.sample(ABOUT_CLAIMS, 2)), True) for _ in range(SHORT)]
    whole = [condition(text, Claims(ISSUER) if claims else NOBODY) for text, claims in asked]
    conditions, asked = [*whole, *map(shorten, whole)], [*asked, *asked]
    found: list[tuple[str, Sent, bool]] = []
    wanted: list[tuple[str, Sent, bool]] = []
    async with answering(conditions, tmp_path, arguments=ARGUMENTS) as envoy:
        for number, (text, claims) in enumerate(asked):
            for sent in requests(chance, claims=claims):
                # Envoy calls the policy server for messages that the reader does not mark.
                if conditions[number].reads_mcp and not is_plain(sent):
                    continue
                found.append((text, sent, await envoy.holds(number, sent)))
                wanted.append((text, sent, ours(program(text), sent)))
    different = [each for each, want in zip(found, wanted, strict=True) if each != want]
    assert [each for each in different if each[1].is_unicode() or each[2]] == []
    assert envoy.statuses == {299, 403}
    assert sum(each.check != ALWAYS for each in conditions) > SHORT
    assert 0.2 < sum(holds for *_, holds in wanted) / len(wanted) < 0.8, "the cases are of one sort"


ITEMS: Final[dict[str, tuple[dict[str, Any], tuple[bool, bool, bool]]]] = {
    "true": ({"items": [{"admin": True}]}, (True, True, False)),
    "false": ({"items": [{"admin": False}]}, (False, True, True)),
    "another key": ({"items": [{"user": True}]}, (False, False, False)),
    "in the second": ({"items": [{}, {"admin": True}]}, (False, False, False)),
    "no items": ({"items": []}, (False, False, False)),
    "no list": ({"items": {"admin": True}}, (False, False, False)),
    "nothing": ({}, (False, False, False)),
}
"""Claims, and whether there is a member in the first of a list that is true, that is there, and that is false."""


async def test_envoy_finds_members_in_lists_as_we_do(tmp_path: Path) -> None:
    texts = ("identity.items[0].admin", "has(identity.items[0].admin)", "!identity.items[0].admin")
    whole = [condition(text, Claims(ISSUER)) for text in texts]
    found, wanted = {}, {}
    async with answering([*whole, *map(shorten, whole)], tmp_path) as envoy:
        for name, (claims, holds) in ITEMS.items():
            sent = Sent(claims=claims)
            found[name] = [await envoy.holds(number, sent) for number in range(6)]
            wanted[name] = [ours(program(text), sent) for text in texts] * 2
            assert tuple(wanted[name][:3]) == holds, name
    assert found == wanted
    assert envoy.statuses == {299, 403}


async def test_envoy_takes_every_construct_that_we_send(tmp_path: Path) -> None:
    made = [condition(text, who) for text, who, _ in TRANSLATED.values()]
    made += [condition(f'request.method.matches("{pattern}")', NOBODY) for pattern in largest_patterns()]
    made.append(Condition(tree=deepest()))
    maps = '{"a": ' * 13 + "1" + "}" * 13
    made.append(condition(f"{maps} == identity.x", Claims(ISSUER)))
    verdict = await validate(bootstrap(made, tmp_path / "s"))
    assert verdict.ok, verdict.output


@pytest.mark.parametrize("name", ["exists", "all", "map", "filter", "a large pattern"])
async def test_envoy_refuses_what_we_leave_to_the_policy_server(name: str, tmp_path: Path) -> None:
    text, _, _ = REFUSED[name]
    if name == "a large pattern":
        bad: Node = program(text).tree
        verdict = await validate(bootstrap([Condition(tree=bad)], tmp_path / "s"))
        assert not verdict.ok
        assert "exceeded RE2 max program size" in verdict.output
    else:
        with pytest.raises(ValueError, match="neither loops"):
            render_condition(program(text).tree)


def largest_patterns() -> list[str]:
    """Return patterns of the largest size that we send, of several kinds."""
    found = []
    for piece, bounds in product(("a", "[a-f0-9]", "(ab|cd)", "é", "(?i)k"), ("^{}$", "{}")):
        pattern = ""
        while pattern_size(bounds.format(pattern + piece)) <= LARGEST_PATTERN and len(pattern + piece) < 240:
            pattern += piece
        found.append(bounds.format(pattern))
    assert {pattern_size(each) for each in found} >= {LARGEST_PATTERN}
    return found


def deepest() -> Node:
    """Return a condition that is as deep as those of entries that stand behind those of their senders."""
    made = condition_nodes.equal(condition_nodes.name("request.method"), "GET")
    for _ in range(DEEPEST - 1):
        made = condition_nodes.negated(made)
    return made
