"""Policies that want tokens come and go while somebody calls a tool all the time, and may."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, deciding, policy, route
from tests.support.gateways.token_site import ALLOWED, PATIENCE, Site, site
from tests.support.issuers.issuer_server import IssuerServer
from tests.support.issuers.minting import signer

KEPT = signer("ES256", "kept")
ANYBODY = "{authorization: [{type: InlineTools, tools: [add]}]}"
TIMES = 10


def bearers(issuer: IssuerServer) -> str:
    """Return a rule for whoever has a token of an issuer."""
    source = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
    return f"{{source: {source}, authorization: [{{type: InlineTools, tools: [add]}}]}}"


def replace_the_rule(it: Site, *, tokens: bool) -> None:
    """Keep one policy, whose rule is for bearers of tokens or for anybody: the listener stays as it is."""
    it.mcp.write("policy.yaml", policy(f"[{bearers(it.issuer) if tokens else ANYBODY}]"))


def delete_the_policy(it: Site, *, tokens: bool) -> None:
    """Delete one of two policies: the listener loses a filter, and connections that drain keep the old routes."""
    it.mcp.write("policy.yaml", policy(f"[{ANYBODY}]"))
    if tokens:
        it.mcp.write("second.yaml", policy(f"[{bearers(it.issuer)}]", name="second"))
    else:
        (it.mcp.folder / "second.yaml").unlink(missing_ok=True)


@pytest.mark.real
@pytest.mark.parametrize("envoy", VERSIONS, ids=lambda version: version.number)
@pytest.mark.parametrize("change", [replace_the_rule, delete_the_policy])
async def test_a_caller_who_may_all_the_time_is_never_refused(
    tmp_path: Path, envoy: Version, change: Callable[..., None]
) -> None:
    async with site(tmp_path, envoy) as it, deciding(it.mcp), it.controlled():
        it.issuer.publish(KEPT)
        # Another target wants tokens all the time, so that the filter stays.
        other = [backend("other"), service("other", it.mcp.origins["shop"].port), route("other", {"other": 1})]
        it.mcp.write("other.yaml", "\n---\n".join([*other, policy(f"[{bearers(it.issuer)}]", "other")]))
        change(it, tokens=True)
        await it.answers(KEPT, ALLOWED)
        async with calling(it, it.token(KEPT)) as answers:
            for number in range(TIMES):
                wants = bool(number % 2)
                change(it, tokens=wants)
                await anonymous(it, allowed=not wants)
            assert answers[ALLOWED] > TIMES
        assert answers.keys() == {ALLOWED}


@asynccontextmanager
async def calling(it: Site, token: str) -> AsyncGenerator[Counter[int | str]]:
    """Call a tool all the time while the block runs, on connections that last until Envoy closes them."""
    answers: Counter[int | str] = Counter()
    stop = asyncio.Event()

    async def call(client: httpx2.AsyncClient) -> None:
        while not stop.is_set():
            # A connection that drains may be closed just when a request comes.
            with suppress(httpx2.TransportError):
                answer = await it.mcp.post(client, {"name": "add"})
                answers[ALLOWED if answer.status_code == ALLOWED else answer.text] += 1

    async with it.mcp.http_client(token=token) as client, asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(call(client))
        try:
            yield answers
        finally:
            stop.set()


async def anonymous(it: Site, *, allowed: bool) -> None:
    """Wait until a caller without a token is allowed, or no longer."""

    async def holds() -> bool:
        async with it.mcp.http_client() as client:
            return ((await it.mcp.post(client, {"name": "add"})).status_code == ALLOWED) is allowed

    await eventually(holds, limit=PATIENCE)
