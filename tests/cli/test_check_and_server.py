"""What `authplane check` says is what the server does: the same requests to both."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.cli.test_check import RULES, answer
from tests.support.authservers.server_process import Server
from tests.support.eventually import eventually
from tests.support.mcp.mcp_checks import mcp_check
from tests.support.policies.documents import ADD, BACKEND, policy, settings
from tests.support.policies.names import AGENT, ISSUER, OTHER

from authplane.devkit.local.dev_issuer import IssuerPlan, RunningIssuer, dev_token, serve_issuer
from authplane.runtime.servers.listen import TcpAddress

FIELDS = {"status": "httpStatus", "mcp_method": "mcpMethod"}
"""What the decision log calls otherwise."""
COMPARED = ("decision", "status", "policy", "rule", "entry", "reason", "identity", "mcp_method", "tool")

CALL = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add"}}'


class Sent(NamedTuple):
    """A request, as both are sent it."""

    spiffe_id: str = ""
    claims: dict[str, Any] | None = None
    body: str = CALL
    target: str = "shop"
    lifetime: timedelta = timedelta(hours=1)


SENT = [
    Sent(),
    Sent(AGENT),
    Sent(OTHER),
    Sent("spiffe://other.example/ns/default/sa/agent"),
    Sent(AGENT, body=CALL.replace("add", "drop")),
    Sent(AGENT, body=CALL.replace("tools/call", "tools/list")),
    Sent(AGENT, body="[]"),
    Sent(AGENT, body='{"id": 1, "id": 2}'),
    Sent(AGENT, body=""),
    Sent(AGENT, target="open"),
    Sent(AGENT, target="broken"),
    Sent(claims={"sub": "ann", "aud": "shop", "group": "admin"}),
    Sent(claims={"sub": "ann", "aud": ["x", "shop"], "group": "user"}),
    Sent(claims={"sub": "ann", "aud": "shop"}),
    Sent(claims={"sub": "ann", "aud": "other", "group": "admin"}),
    Sent(claims={"sub": "ann", "aud": "shop", "group": "admin"}, lifetime=timedelta(hours=-1)),
    Sent(AGENT, claims={"sub": "ann", "aud": "shop", "group": "user"}),
]


def write(folder: Path, issuer: RunningIssuer) -> None:
    others = (BACKEND.replace("name: shop", f"name: {name}", 1) for name in ("open", "broken"))
    broken = policy(f"[{{authorization: {ADD}, sauce: x}}]", name="b", targets="[{kind: Backend, name: broken}]")
    reach = f"{{url: '{issuer.url}', caFile: '{issuer.ca_file}', allowPrivateNetwork: true}}"
    documents = (BACKEND, *others, policy(RULES.replace(ISSUER, issuer.url)), broken)
    text = "\n---\n".join((*documents, settings(f"{{issuers: [{reach}]}}")))
    folder.mkdir()
    (folder / "all.yaml").write_text(text, encoding="utf-8")


def described(sent: Sent, token: str) -> dict[str, Any]:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    peer = ({"spiffe": sent.spiffe_id} if sent.spiffe_id else {}) | ({"token": token} if token else {})
    body = {"body": sent.body} if sent.body else {}
    return {"target": {"kind": "Backend", "name": sent.target}, "headers": headers, "peer": peer, **body}


@pytest.mark.real
async def test_both_give_the_same_answers(tmp_path: Path) -> None:
    plan = IssuerPlan(folder=tmp_path / "dev", address=TcpAddress(host="127.0.0.1", port=0))
    folder, now, server = tmp_path / "gateway", datetime.now(UTC), Server()
    async with serve_issuer(plan, now) as issuer:
        write(folder, issuer)
        tokens = [
            dev_token(plan.folder, each.claims, now=now, lifetime=each.lifetime) if each.claims else "" for each in SENT
        ]
        async with server.running("policy", str(folder), "--engine", "grpcio"):

            async def ready() -> bool:
                return (await server.page("/readyz")).status_code == 200

            await eventually(ready)
            for sent, token in zip(SENT, tokens, strict=True):
                context = {"authplane.target": f"Backend/default/{sent.target}"}
                shown = {"authorization": f"Bearer {token}"} if token else {}
                body = sent.body.encode()
                await server.answer(mcp_check(body, spiffe_id=sent.spiffe_id, context=context, headers=shown))

            async def told() -> bool:
                return len(server.decisions) == len(SENT)

            await eventually(told)
        text = json.dumps([described(*pair) for pair in zip(SENT, tokens, strict=True)])
        records = await asyncio.to_thread(answer, folder, text, "--fetch")
    said = [{name: record[FIELDS.get(name, name)] for name in COMPARED} for record in records]
    done = [{name: line[name] for name in COMPARED} for line in server.decisions]
    assert said == done
    assert {each["decision"] for each in said} == {"allow", "deny"}
