"""`authplane authserver policy`: the policies of a folder, in both engines."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import grpc.aio
import httpx2
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.authservers.server_process import Server
from tests.support.eventually import eventually
from tests.support.mcp.mcp_checks import AGENT, SHOP, call_body, mcp_check, tool_check

from authplane.sources.runtime.last_good_store import LastGood, default_state_dir

pytestmark = pytest.mark.real

BACKENDS = """
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: shop}
spec: {mcp: {serviceName: shop, port: 80}}
---
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {name: open}
spec: {mcp: {serviceName: shop, port: 80}}
"""


def policy(authorization: str = "[{type: InlineTools, tools: [add]}]") -> str:
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: shop}}
spec:
  targetRefs: [{{kind: Backend, name: shop}}]
  rules:
  - name: agents
    source: {{type: SPIFFE, spiffe: "{AGENT}"}}
    authorization: {authorization}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "resources"
    made.mkdir()
    (made / "backends.yaml").write_text(BACKENDS)
    (made / "policy.yaml").write_text(policy())
    return made


def status(response: pb.CheckResponse) -> int:
    """Return 200 for an allowance, and the status that a client gets otherwise."""
    if response.HasField("denied_response"):
        return int(response.denied_response.status.code)
    return int(response.error_response.status.code) if response.HasField("error_response") else 200


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in {"time", "ms"}}


@pytest.mark.requirement("S15")
@pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])
async def test_policies_decide_and_every_decision_is_logged(folder: Path, engine: str) -> None:
    server = Server()
    async with server.running("policy", str(folder), "--engine", engine):
        assert status(await server.answer(tool_check(spiffe_id=AGENT))) == 200
        denied = await server.answer(tool_check("wipe", spiffe_id=AGENT))
        assert status(denied) == 403
        assert json.loads(denied.denied_response.body) == {
            "jsonrpc": "2.0",
            "id": 7,
            "error": {
                "code": -32003,
                "message": 'Access denied. No rule grants tools/call "wipe" to this caller.',
                "data": {"decisionId": "42"},
            },
        }
        assert status(await server.answer(tool_check())) == 403
        assert status(await server.answer(tool_check(context={}))) == 503

        async def told() -> bool:
            return len(server.decisions) == 4

        await eventually(told)
        common = {
            "backend": "policy", "source": "10.0.0.1", "id": "42", "method": "POST", "host": "mcp.example",
            "path": "/mcp", "policy": "AccessPolicy/default/shop", "mcp_method": "tools/call", "cel_failures": [],
        }  # fmt: skip
        assert without_times(server.decisions[0]) == common | {
            "decision": "allow", "status": None, "rule": "agents", "entry": "0:InlineTools", "reason": "granted",
            "identity": AGENT, "tool": "add",
        }  # fmt: skip
        assert without_times(server.decisions[1]) == common | {
            "decision": "deny", "status": 403, "rule": "agents", "entry": "0:InlineTools", "reason": "tool_not_listed",
            "identity": AGENT, "tool": "wipe",
        }  # fmt: skip
        assert server.decisions[2]["reason"] == "no_peer_identity"
        assert (server.decisions[3]["decision"], server.decisions[3]["policy"]) == ("unavailable", "")
        page = await server.page("/readyz")
        assert (page.status_code, page.text) == (200, "ready\n")


@pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])
async def test_a_change_of_the_folder_applies_without_a_restart_and_an_error_opens_nothing(
    folder: Path, engine: str
) -> None:
    server = Server()
    async with server.running("policy", str(folder), "--engine", engine):
        assert status(await server.answer(tool_check("wipe", spiffe_id=AGENT))) == 403
        (folder / "policy.yaml").write_text(policy("[{type: InlineTools, tools: [wipe]}]"))

        async def wipes() -> bool:
            return status(await server.answer(tool_check("wipe", spiffe_id=AGENT))) == 200

        await eventually(wipes)
        assert status(await server.answer(tool_check("add", spiffe_id=AGENT))) == 403
        # An expression that cannot be compiled: the policy denies everything.
        (folder / "policy.yaml").write_text(policy("[{type: CEL, cel: 'request.nothing'}]"))

        async def denies() -> bool:
            return status(await server.answer(tool_check("wipe", spiffe_id=AGENT))) == 403

        await eventually(denies)
        await server.says("found a problem with policies")
        other = SHOP | {"authplane.target": "Backend/default/open"}
        assert status(await server.answer(tool_check(context=other))) == 403


@pytest.mark.requirement("S09")
async def test_a_name_without_its_certificate_is_no_identity(folder: Path) -> None:
    server = Server()
    async with server.running("policy", str(folder), "--engine", "grpcio"):
        named = tool_check()
        named.attributes.source.principal = AGENT
        assert status(await server.answer(named)) == 403
        other = tool_check(spiffe_id=f"{AGENT}-2")
        other.attributes.source.principal = AGENT
        assert status(await server.answer(other)) == 403
        assert status(await server.answer(tool_check(spiffe_id=AGENT))) == 200


@pytest.mark.requirement("S16")
async def test_expressions_that_fail_are_counted_and_told(folder: Path) -> None:
    (folder / "policy.yaml").write_text(policy("[{type: CEL, cel: 'request.mcp.params.a > 1.0'}]"))
    server = Server()
    async with server.running("policy", str(folder), "--engine", "grpcio"):
        assert status(await server.answer(mcp_check(call_body(a=2), spiffe_id=AGENT))) == 200
        assert status(await server.answer(mcp_check(call_body(), spiffe_id=AGENT))) == 403
        metrics = await server.metrics()
        assert metrics["cel_failures_total policy no_such_key AccessPolicy/default/shop"] == 1
        assert metrics["checks_total policy allow"] == metrics["checks_total policy deny"] == 1
        assert metrics["policy_targets policy"] == 1

        async def told() -> bool:
            return len(server.decisions) == 2

        await eventually(told)
        assert server.decisions[1]["cel_failures"] == ["AccessPolicy/default/shop agents 0:CEL no_such_key"]


async def test_several_workers_and_http_checks_decide_alike(folder: Path) -> None:
    (folder / "policy.yaml").write_text(policy().replace(f'    source: {{type: SPIFFE, spiffe: "{AGENT}"}}\n', ""))
    server = Server()
    options = ("--engine", "pyvoy", "--workers", "2", "--target", "Backend/default/shop")
    async with server.running("policy", str(folder), *options, http=True):
        assert len(server.workers()) == 3
        for _ in range(4):
            assert status(await server.answer(tool_check())) == 200
            assert status(await server.answer(tool_check("wipe"))) == 403
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.http}", headers=headers) as client:
            answers = [await client.post("/mcp", content=call_body(tool)) for tool in ("add", "wipe")]
        assert [each.status_code for each in answers] == [200, 403]


async def test_a_denial_with_status_200_is_no_allowance_over_http(folder: Path) -> None:
    settings = """
---
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {denialFormat: jsonrpc200}
"""
    (folder / "policy.yaml").write_text(policy() + settings)
    server = Server()
    options = ("--engine", "grpcio", "--target", "Backend/default/shop")
    async with server.running("policy", str(folder), *options, http=True):
        denied = await server.answer(tool_check("wipe", spiffe_id=AGENT))
        assert (denied.status.code, status(denied)) == (7, 200)
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.http}", headers=headers) as client:
            assert (await client.post("/mcp", content=call_body("wipe"))).status_code == 403


async def test_a_target_that_does_not_exist_is_a_warning(folder: Path) -> None:
    server = Server()
    async with server.running("policy", str(folder), "--engine", "grpcio", "--target", "Backend/default/shopp"):
        await server.says("found no resource for --target or --gateway")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("missing-folder",), "Cannot read missing-folder"),
        ((".", "--target", "Service/a/b"), "Use --target Backend/NAMESPACE/NAME"),
        ((".", "--http-address", "0.0.0.0:0"), "without client certificates"),
    ],
)
async def test_what_cannot_be_served_is_one_sentence(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    server = Server()
    with pytest.raises(AssertionError, match=words):
        async with server.running("policy", *options):
            pass
    assert len(server.lines) == 1


@pytest.mark.requirement("F15")
async def test_a_server_that_starts_with_a_broken_file_decides_by_its_last_good_version(folder: Path) -> None:
    async def kept() -> bool:
        state = LastGood(default_state_dir(), folder).read()
        return state is not None and "policy.yaml" in state.files

    server = Server()
    async with server.running("policy", str(folder), "--engine", "grpcio"):
        assert status(await server.answer(tool_check(spiffe_id=AGENT))) == 200
        await eventually(kept)
    (folder / "policy.yaml").write_text(policy().replace("rules:", "ruels:"), encoding="utf-8")
    (folder / "new.yaml").write_text("kind: AccessPolicy\n  a: b: c", encoding="utf-8")
    again = Server()
    async with again.running("policy", str(folder), "--engine", "grpcio"):
        assert status(await again.answer(tool_check(spiffe_id=AGENT))) == 200
        assert status(await again.answer(tool_check("wipe", spiffe_id=AGENT))) == 403


@pytest.mark.requirement("F15")
async def test_workers_that_are_replaced_while_a_file_is_broken_decide_as_before(folder: Path) -> None:
    async def kept() -> bool:
        state = LastGood(default_state_dir(), folder).read()
        return state is not None and "policy.yaml" in state.files

    server = Server()
    async with server.running("policy", str(folder), "--engine", "pyvoy", "--workers", "2"):
        await eventually(kept)
        (folder / "policy.yaml").write_text(policy().replace("rules:", "ruels:"), encoding="utf-8")
        (folder / "new.yaml").write_text("kind: AccessPolicy\n  a: b: c", encoding="utf-8")
        old = server.workers()
        assert len(old) == 2
        for pid in old:
            os.kill(pid, signal.SIGKILL)

        async def replaced() -> bool:
            return len(server.workers()) == 2 and not set(server.workers()) & set(old)

        async def answers() -> bool:
            try:
                return status(await server.answer(tool_check(spiffe_id=AGENT))) == 200
            except grpc.aio.AioRpcError:
                return False

        await eventually(replaced)
        await eventually(answers)
        for _ in range(4):
            assert status(await server.answer(tool_check(spiffe_id=AGENT))) == 200
            assert status(await server.answer(tool_check("wipe", spiffe_id=AGENT))) == 403


@pytest.mark.requirement("F02")
@pytest.mark.requirement("F12")
async def test_a_writer_that_pauses_opens_nothing_and_what_opens_waits(folder: Path) -> None:
    file, quiet = folder / "policy.yaml", 1.0
    wider = policy().replace(f'    source: {{type: SPIFFE, spiffe: "{AGENT}"}}\n', "")
    server = Server()

    async def strangers_pass() -> bool:
        return status(await server.answer(tool_check())) == 200

    async def strangers_do_not() -> bool:
        return not await strangers_pass()

    async with server.running("policy", str(folder), "--engine", "grpcio", "--loosen-after", str(quiet)):
        (folder / "bad.yaml").write_text("kind: [", encoding="utf-8")
        await server.says("bad.yaml")
        with file.open("w", encoding="utf-8") as writer:
            writer.write(wider)
            writer.flush()
            # A new folder makes the server look at all files meanwhile.
            (folder / "sub").mkdir()
            (folder / "sub/worse.yaml").write_text("kind: [", encoding="utf-8")
            await server.says("worse.yaml")
            assert await strangers_do_not()
            begun = time.monotonic()
        await server.says("delayed a change that removes protection until its file stays unchanged")
        assert await strangers_do_not() or time.monotonic() - begun >= quiet
        await eventually(strangers_pass)
        assert time.monotonic() - begun >= quiet
        file.write_text(policy(), encoding="utf-8")
        await eventually(strangers_do_not)
