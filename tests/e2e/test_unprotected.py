"""Backends that no policy protects, in one running gateway: a wrong name in a policy opens nothing."""

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.eventually import START_LIMIT, eventually
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, policy
from tests.support.gateways.status_conditions import records
from tests.support.mcp.denial_bodies import split_body
from tests.support.ports import free_port

from authplane.runtime.child_processes import Line, run_process

PATIENCE = START_LIMIT
JANITOR = """
  - source: {type: SPIFFE, spiffe: "spiffe://cluster.local/janitor"}
    authorization: [{type: InlineTools, tools: [add]}]
"""
DENIED = {"code": -32003, "message": 'Access denied. No rule grants tools/call "add" to this caller.'}
UNPROTECTED = {"code": -32003, "message": "Access denied. No policy protects this server."}


def configuration(port: int, more: str = "") -> str:
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  gateway: {{port: {port}}}
{more}
"""


async def call(port: int, name: str) -> tuple[int, Any]:
    """Call a tool of a Backend without any identity; return the status and what the gateway says of an error."""
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "arguments": {}}}
    headers = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(timeout=10) as client:
        answer = await client.post(f"http://127.0.0.1:{port}/default/{name}", json=message, headers=headers)
    said = json.loads(answer.text) if answer.headers.get("content-type") == "application/json" else {}
    return answer.status_code, split_body(said)[0]["error"] if "error" in said else None


@pytest.mark.real
@pytest.mark.requirement("R30")
async def test_a_target_that_does_not_exist_opens_no_backend(tmp_path: Path) -> None:
    port, echo = free_port(), free_port()
    folder, lines = tmp_path / "gateway", list[str]()
    folder.mkdir()

    async def sink(line: Line) -> None:
        lines.append(line.text)

    def write(name: str, *documents: str) -> None:
        draft = folder / f".{name}.new"
        draft.write_text("\n---\n".join(documents), encoding="utf-8")
        draft.replace(folder / name)

    async def says(words: str) -> None:
        async def holds() -> bool:
            return words in " ".join(" ".join(lines).split())

        await eventually(holds, limit=PATIENCE)

    write("settings.yaml", configuration(port))
    write("mcp.yaml", *(text for name in ("mine", "bare") for text in (backend(name), service(name, echo))))
    write("policy.yaml", policy(JANITOR, "mine", name="p"))
    argv = [sys.executable, "-m", "authplane", "run", str(folder), "--state-dir", str(tmp_path / "state")]
    argv += ["--authserver-address", "", "--echo-address", f"127.0.0.1:{echo}"]
    async with run_process(argv, sink=sink, environment={"COLUMNS": "400"}):
        await says("Press Ctrl-C to stop")
        await says("No policy protects this target, so authplane denies every request.")
        await says("(Backend/default/bare, Unprotected)")
        assert await call(port, "mine") == (403, DENIED)
        assert await call(port, "bare") == (403, UNPROTECTED)

        write("policy.yaml", policy(JANITOR, "mien", name="p"))
        await says("Backend default/mien not found. Did you mean 'mine'? The last good version stays in force.")
        # A later change has been served as well: the policy still protects what it protected, and only that.
        write("settings.yaml", configuration(port, "  unprotectedBackends: Allow"))

        async def opened() -> bool:
            return (await call(port, "bare"))[0] == 200

        await eventually(opened, limit=PATIENCE)
        assert await call(port, "mine") == (403, DENIED)
        told = {f"{each['kind']}/{each['metadata']['name']}": each["status"] for each in await records(folder)}
        [outdated] = told["AccessPolicy/p"]["conditions"]
        assert (outdated["type"], outdated["status"]) == ("UpToDate", "False")
        [ancestor] = told["AccessPolicy/p"]["ancestors"]
        assert ancestor["ancestorRef"]["name"] == "mine"
