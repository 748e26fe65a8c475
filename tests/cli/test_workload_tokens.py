"""Tokens of workloads: `authplane authserver policy` takes them, and `authplane check` says the same."""

import asyncio
import json
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from tests.cli.test_check import answer, invoke
from tests.cli.test_policy_server import status
from tests.support.authservers.server_process import Server
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import service
from tests.support.issuers.workload_issuers import WORKLOAD, WorkloadIssuers, workload_issuers
from tests.support.mcp.mcp_checks import AGENT, SHOP, call_body, tool_check
from tests.support.mcp.tool_server import tool_server
from tests.support.policies.documents import BACKEND, policy, settings
from tests.support.ports import free_port

from authplane.runtime.child_processes import Line, run_process

RULES = f"""
  - name: workload
    source: {{type: SPIFFE, spiffe: '{WORKLOAD}'}}
    authorization: [{{type: InlineTools, tools: [add]}}]
  - name: account
    source: {{type: ServiceAccount, serviceAccount: {{name: agent}}}}
    authorization: [{{type: CEL, cel: 'identity.service_account == "agent" && identity.namespace == "default"'}}]
"""
OVER = timedelta(hours=-1)
COMPARED = {"decision": "decision", "status": "httpStatus", "rule": "rule", "reason": "reason", "identity": "identity"}
TARGET = {key: value for key, value in SHOP.items() if key == "authplane.target"}


class Sent(NamedTuple):
    """A request, as both are sent it, and what must come of it."""

    token: str
    spiffe_id: str
    want: tuple[int, str, str]
    """The status, the rule and the reason."""


def sent(issuers: WorkloadIssuers) -> list[Sent]:
    bad = "bad_workload_token"
    return [
        Sent(issuers.svid(), "", (200, "workload", "granted")),
        Sent(issuers.svid(aud="elsewhere"), "", (401, "", f"{bad}:audience_missing")),
        Sent(issuers.svid(lifetime=OVER), "", (401, "", "bad_token:token_expired")),
        Sent(issuers.svid("spiffe://elsewhere.example/agent"), "", (401, "", f"{bad}:trust_domain_not_allowed")),
        Sent(issuers.svid(f"{WORKLOAD}-2"), "", (401, "", "peer_not_listed")),
        Sent(issuers.projected(), "", (200, "account", "granted")),
        Sent(issuers.projected(aud="elsewhere"), "", (401, "", f"{bad}:audience_missing")),
        Sent(issuers.projected(lifetime=OVER), "", (401, "", "bad_token:token_expired")),
        Sent(issuers.projected(namespace="other"), "", (401, "", "peer_not_listed")),
        Sent(issuers.svid(), AGENT, (401, "", f"{bad}:workloads_differ")),
        Sent(issuers.projected(), AGENT, (200, "account", "granted")),
        Sent("", AGENT, (200, "account", "granted")),
        Sent("", "", (401, "", "no_peer_identity")),
    ]


def described(each: Sent) -> dict[str, Any]:
    peer = ({"spiffe": each.spiffe_id} if each.spiffe_id else {}) | ({"token": each.token} if each.token else {})
    return {
        "target": {"kind": "Backend", "name": "shop"},
        "mcp": {"method": "tools/call", "params": {"name": "add"}},
        "peer": peer,
    }


def write(folder: Path, issuers: WorkloadIssuers, verification: str = "Keys", more: str = "") -> None:
    folder.mkdir(exist_ok=True)
    entries = ", ".join(issuers.settings(verification=verification))
    text = "\n---\n".join([BACKEND, policy(RULES), settings(f"{{issuers: [{entries}], {more}}}")])
    (folder / "all.yaml").write_text(text, encoding="utf-8")


@pytest.mark.real
async def test_the_server_and_check_know_workloads_by_their_tokens(tmp_path: Path) -> None:
    folder, server = tmp_path / "gateway", Server()
    async with workload_issuers(tmp_path) as issuers:
        write(folder, issuers)
        each_sent = sent(issuers)
        async with server.running("policy", str(folder), "--engine", "grpcio"):

            async def ready() -> bool:
                return (await server.page("/readyz")).status_code == 200

            await eventually(ready)
            statuses = []
            for each in each_sent:
                headers = {"authorization": f"Bearer {each.token}"} if each.token else {}
                request = tool_check(spiffe_id=each.spiffe_id, context=TARGET, headers=headers)
                statuses.append(status(await server.answer(request)))
            assert statuses == [each.want[0] for each in each_sent]

            async def told() -> bool:
                return len(server.decisions) == len(each_sent)

            await eventually(told)
            # Tokens are nowhere in what the server writes.
            lines = "\n".join(line.text for line in server.lines)
            assert not [each for each in each_sent if each.token and each.token.split(".")[2] in lines]
        text = json.dumps([described(each) for each in each_sent])
        records = await asyncio.to_thread(answer, folder, text, "--fetch")
    assert [(line["rule"], line["reason"]) for line in server.decisions] == [each.want[1:] for each in each_sent]
    said = [{ours: record[theirs] for ours, theirs in COMPARED.items()} for record in records]
    assert said == [{name: line[name] for name in COMPARED} for line in server.decisions]


async def test_check_assumes_tokens_of_workloads_and_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    async with workload_issuers(tmp_path) as issuers:
        write(folder, issuers)
    request = {
        **described(Sent("", "", (200, "", ""))),
        "peer": {"token": {"issuer": issuers.spire.url, "claims": {"sub": WORKLOAD, "aud": "shop"}}},
    }
    found = await asyncio.to_thread(answer, folder, json.dumps(request))
    assert (found["decision"], found["rule"], found["identity"]) == ("allow", "workload", WORKLOAD)
    assert found["notes"] == [f"assumed: {issuers.spire.url} signed the claims; no signature was verified"]
    # A token whose keys are not at hand is not known.
    request["peer"] = {"token": issuers.svid()}
    found = await asyncio.to_thread(answer, folder, json.dumps(request))
    assert (found["decision"], found["reason"]) == ("unavailable", "issuer_not_ready")
    assert found["notes"] == [f"missing: keys of issuer {issuers.spire.url}. Use --keys or --fetch."]


@pytest.mark.real
async def test_settings_that_leave_tokens_to_a_cluster_that_is_not_there_are_refused(tmp_path: Path) -> None:
    folder, server = tmp_path / "gateway", Server()
    async with workload_issuers(tmp_path) as issuers:
        write(folder, issuers, "TokenReview")
        result = await asyncio.to_thread(invoke, "lint", str(folder))
        assert result.exit_code == 1
        assert "No Kubernetes API server is available to review tokens" in result.stdout
        async with server.running("policy", str(folder), "--engine", "grpcio"):
            headers = {"authorization": f"Bearer {issuers.projected()}"}
            for request in (
                tool_check(context=TARGET, headers=headers),
                tool_check(context=TARGET, spiffe_id=AGENT),
            ):
                assert status(await server.answer(request)) == 503
            await server.says("No Kubernetes API server is available to review tokens")


@pytest.mark.real
async def test_run_knows_workloads_by_their_tokens(tmp_path: Path) -> None:
    folder, port, lines = tmp_path / "gateway", free_port(), list[str]()

    async def sink(line: Line) -> None:
        lines.append(line.text)

    async with workload_issuers(tmp_path) as issuers, tool_server("shop") as origin:
        write(folder, issuers, more=f"gateway: {{port: {port}}}")
        (folder / "service.yaml").write_text(service("shop", origin.port), encoding="utf-8")
        options = ("--state-dir", str(tmp_path / "state"), "--authserver-address", "", "--echo-address", "")
        argv = [sys.executable, "-m", "authplane", "run", str(folder), *options]
        async with run_process(argv, sink=sink):

            async def serves() -> bool:
                return any("Press Ctrl-C to stop" in line for line in lines)

            await eventually(serves)
            body, mcp = call_body("add", a=1, b=2), {"accept": "application/json, text/event-stream"}

            async def ask(token: str) -> int:
                headers = mcp | {"authorization": f"Bearer {token}", "content-type": "application/json"}
                async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                    return (await http.post("/default/shop", content=body, headers=headers)).status_code

            async def known() -> bool:
                # Until the keys are there nothing is known.
                return await ask(issuers.svid()) != 503

            await eventually(known)
            # What is allowed is refused by the server, which knows no session.
            allowed, other = issuers.projected(), issuers.projected(namespace="other")
            assert [await ask(token) for token in (issuers.svid(), allowed)] == [400, 400]
            assert [await ask(token) for token in (issuers.svid(aud="x"), other)] == [401, 401]
