"""The folders of `authplane init`, served by the programs that it names, as the user would start them."""

import asyncio
import contextlib
import shlex
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.support.certificates import authority
from tests.support.eventually import START_LIMIT, eventually
from tests.support.mcp.tool_server import tool_server
from tests.support.ports import free_port
from tests.support.resources.contour_manifests import PASSWORD, manifests

from authplane.runtime.child_processes import Line, run_process

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@asynccontextmanager
async def program(line: str, port: int) -> AsyncGenerator[None]:
    """Run a command of ours, from the moment that it listens on."""
    lines: list[Line] = []

    async def sink(line: Line) -> None:
        lines.append(line)

    name, *arguments = shlex.split(line)
    assert name == "authplane"
    async with run_process([sys.executable, "-m", "authplane", *arguments], sink=sink) as child:

        async def listens() -> bool:
            assert child.status is None, lines
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return True
            return False

        await eventually(listens, limit=START_LIMIT)
        yield


async def output(line: str) -> str:
    """Return what a command of ours prints; it must succeed."""
    lines: list[Line] = []

    async def sink(line: Line) -> None:
        lines.append(line)

    argv = [sys.executable, "-m", "authplane", *shlex.split(line)[1:]]
    async with run_process(argv, sink=sink) as child:
        assert await child.ended() == 0, lines
    return "\n".join(each.text for each in lines)


def next_commands(printed: str) -> list[str]:
    """Return the commands under ``Next``."""
    return [line.strip() for line in printed.partition("\nNext")[2].splitlines() if line.startswith("  ")]


@pytest.mark.requirement("IN-1")
async def test_run_serves_the_folder_only_to_members_of_a_group() -> None:
    port = free_port()
    async with tool_server() as tools:
        url = f"http://127.0.0.1:{tools.port}/mcp"
        made = await output(f"authplane init notes --url {url} --issuer dev --port {port} --group adders=add")
        test, run, call = next_commands(made)
        assert "1 failed" not in await output(test)
        token = "authplane dev token --sub alice --aud tools --claim 'groups:=[\"adders\"]'"
        assert token in call
        async with program(f"{run} --loosen-after 0", port):
            served = f"http://127.0.0.1:{port}/default/tools"
            member = (await output(token)).strip()
            stranger = (await output(token.replace("adders", "others"))).strip()
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {member}"}, timeout=30) as http,
                Client(streamable_http_client(served, http_client=http)) as client,
            ):
                result = await client.call_tool("add", {"a": 2, "b": 3})
            statuses = [await called(served, each, tool) for each, tool in (
                (member, "add"), (member, "wipe"), (stranger, "add"), ("", "add"),
            )]  # fmt: skip
    assert result.structured_content == {"result": 5}
    assert statuses[1:] == [403, 403, 401]
    assert statuses[0] not in {401, 403}
    assert set(tools.called) == {"add"}


async def called(url: str, token: str, tool: str) -> int:
    """Call a tool with one request, and return the status of the answer."""
    headers = {"accept": "application/json, text/event-stream"} | (
        {"authorization": f"Bearer {token}"} if token else {}
    )
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
    async with httpx2.AsyncClient(timeout=30) as http:
        return (await http.post(url, headers=headers, json=message)).status_code


@pytest.mark.requirement("IN-2")
async def test_the_commands_that_init_prints_serve_what_contour_served(tmp_path: Path) -> None:
    http, https, checks = (free_port() for _ in range(3))
    files = manifests("localhost")
    files["auth/server.yaml"] = files["auth/server.yaml"].replace("--address=:9443", f"--address=:{checks}")
    # Nobody listens at the origin: a request that is allowed gets 503, and one that is not 401.
    files["shop.yaml"] = (
        files["shop.yaml"].replace("10.0.0.1", "127.0.0.1").replace("port: 8080", f"port: {free_port()}")
    )
    files["settings.yaml"] = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{listeners: {{http: {{port: {http}}}, https: {{port: {https}}}}}}}
"""
    for name, text in files.items():
        (tmp_path / "old" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "old" / name).write_text(text, encoding="utf-8")
    validate, serve, run, _ = next_commands(await output("authplane init new --from-contour old"))
    assert "0 errors, 0 warnings" in await output(validate)
    tls = ssl.create_default_context(cadata=authority().certificate.decode())
    async with (
        program(f"{serve} --engine grpcio --metrics-address '' --state-dir state", checks),
        program(f"{run} --loosen-after 0", https),
        httpx2.AsyncClient(base_url=f"https://localhost:{https}", verify=tls, timeout=30) as client,
    ):
        right = await client.get("/", auth=("alice", PASSWORD))
        wrong = await client.get("/", auth=("alice", "wrong"))
    assert (right.status_code, wrong.status_code) == (503, 401)
    assert wrong.headers["www-authenticate"] == 'Basic realm="shop", charset="UTF-8"'
