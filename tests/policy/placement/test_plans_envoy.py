"""What plans let Envoy allow or deny by itself, the policy engine decides the same way; with policies at random."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest
from tests.support.envoy.answered_conditions import Asked, Sent, answering
from tests.support.issuers.keyrings import ring, verify
from tests.support.issuers.minting import signer
from tests.support.policies.callers import Proof as Proved
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, OIDC, SCOPED, policy
from tests.support.policies.judging import judge, word
from tests.support.policies.names import TO_SHOP

from authplane.cel.envoy.translate import Condition
from authplane.policy.attached.attachments import Policies
from authplane.policy.identity.tokens.bearer import Bearer, parse_bearer
from authplane.policy.placement.placement_model import Choices, PlacedPolicy, Plan
from authplane.policy.placement.placement_plan import place_chain

SETS: Final = 24
REQUESTS: Final = 8
SOURCES: Final = ("", f"source: {OIDC}, ", f"source: {SCOPED}, ")
TEXTS: Final = (
    "request.method == 'POST'", "request.path == '/mcp'", "!(request.path == '/x')", "identity.group == 'admin'",
    "identity.group != 'admin'", "has(identity.group)", "request.mcp.tool_name.startsWith('read_')",
    "request.mcp.method != 'tools/call'", "'x-a' in request.headers", "request.headers['x-a'] != 'a'",
    "identity.tools.exists(x, x == request.mcp.tool_name)", "request.mcp.params.a == 1.0",
)  # fmt: skip
ENTRIES: Final = (
    "{type: InlineTools, tools: [add]}",
    "{type: InlineTools, tools: [add, read_x]}",
    "{type: Inline, paths: [/mcp]}",
    "{type: Inline, headers: [{name: x-a, value: a}], methods: [POST]}",
    "{type: Inline, mcp: {methods: [{name: prompts}]}}",
    *(f'{{type: CEL, cel: {{expression: "{text}"}}}}' for text in TEXTS),
)


def rpc(method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


BODIES: Final = (
    rpc("tools/call", name="add", arguments={"a": 1}),
    rpc("tools/call", name="read_x", arguments={}),
    rpc("tools/call", name="evil", arguments={}),
    rpc("tools/list"),
    rpc("prompts/get", name="a"),
    "",
)
CLAIMS: Final = (
    None,
    {"aud": "other"},
    {"aud": "shop"},
    {"aud": ["shop"], "group": "admin", "scope": "tools"},
    {"aud": "shop", "group": "staff", "tools": ["read_x"], "scp": ["admin"]},
)


class Placed(NamedTuple):
    """Policies, their plan, and where its conditions stand among those that Envoy is given."""

    policies: Policies
    plan: Plan
    first: int


def documents(chance: Random) -> Iterator[str]:
    for number in range(chance.choice((1, 1, 2))):
        rules = [
            f"{{{chance.choice(SOURCES)}authorization: [{', '.join(chance.sample(ENTRIES, chance.choice((1, 2))))}]}}"
            for _ in range(chance.choice((1, 2, 3)))
        ]
        yield policy(f"[{', '.join(rules)}]", name=f"p{number}")


def request(chance: Random) -> Sent:
    body = chance.choice(BODIES)
    return Sent(
        method="POST" if body else "GET",
        path=chance.choice(("/mcp", "/mcp", "/a//b")),
        headers=chance.choice(((), (("x-a", "a"),), (("x-a", "b"),), (("mcp-protocol-version", "2025-06-18"),))),
        body=body,
        claims=chance.choice(CLAIMS),
    )


def conditions(plan: Plan) -> list[Condition]:
    """Return the conditions of a plan in the order in which `ask` takes them."""
    found = [plan.front]
    for attachment in plan.attachments:
        for placed in attachment.policies:
            found += [condition for entry in placed.native if (condition := entry.granted()) is not None]
            found += [condition for condition, _ in (entry.reached() for entry in placed.asked)]
    return found


async def ask(envoy: Asked, placed: Placed, sent: Sent) -> str:
    """Return what Envoy does with a request by itself: ``allow`` or ``deny``; ``ask`` if it is not sure."""
    answers = iter([await envoy.holds(placed.first + n, sent) for n in range(len(conditions(placed.plan)))])
    front = next(answers)
    said = [_said(each, answers) for attachment in placed.plan.attachments for each in attachment.policies]
    if not front:
        return "ask"
    if "deny" in said:
        return "deny"
    return "ask" if "ask" in said else "allow"


def _said(placed: PlacedPolicy, answers: Iterator[bool]) -> str:
    granted = [next(answers) for _ in placed.native]
    reached = [next(answers) for _ in placed.asked]
    if any(granted):
        return "allow"
    return "ask" if any(reached) else "deny"


def engine(placed: Placed, sent: Sent) -> str:
    asked = sent.request()
    shown = parse_bearer(asked)
    now = datetime.now(UTC).timestamp()
    token = verify(shown.token, ring(signer("ES256")), now) if isinstance(shown, Bearer) else shown
    return word(judge(placed.policies, asked, Proved(shown=token), target=TO_SHOP))


@pytest.mark.real
@pytest.mark.requirement("R28")
@pytest.mark.requirement("R29")
@pytest.mark.requirement("R42")
async def test_envoy_alone_decides_as_the_engine_does(tmp_path: Path) -> None:
    chance = Random(80)  # noqa: S311 (the same cases every time)
    sets: list[Placed] = []
    needed: list[Condition] = []
    for _ in range(SETS):
        made = policies(BACKEND, *documents(chance))
        way = made.chain(TO_SHOP)
        assert way is not None
        plan = place_chain(way, made.settings, Choices())
        sets.append(Placed(made, plan, len(needed)))
        needed += conditions(plan)
    found: list[tuple[str, str, Sent, Policies]] = []
    async with answering(needed, tmp_path, arguments=["a"]) as envoy:
        for placed in sets:
            asked = [request(chance) for _ in range(REQUESTS)]
            found += [(await ask(envoy, placed, sent), engine(placed, sent), sent, placed.policies) for sent in asked]
    assert [each for each in found if each[0] == "allow" and each[1] != "allow"] == []
    assert [each for each in found if each[0] == "deny" and each[1] == "allow"] == []
    counts = {name: sum(each[0] == name for each in found) for name in ("allow", "deny", "ask")}
    assert min(counts.values()) > len(found) // 10, counts
