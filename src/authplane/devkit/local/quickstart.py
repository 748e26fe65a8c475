"""What to try with the quickstart."""

import os
import sys
from pathlib import Path
from typing import Final, NamedTuple

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.port_model import SecurePort
from authplane.devkit.local.workspace import Workspace
from authplane.runtime.servers.listen import TcpAddress

TOOLS_ADDRESS: Final = TcpAddress(host="127.0.0.1", port=9082)
ISSUER_ADDRESS: Final = TcpAddress(host="127.0.0.1", port=9445)

_CALL: Final = '{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}'
_AGENT: Final = """\
import asyncio, ssl, subprocess
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

token = subprocess.check_output({token!r}, shell=True, text=True).strip()
tls = ssl.create_default_context(cafile={ca!r})

async def main():
    async with httpx2.AsyncClient(verify=tls, headers={{"authorization": f"Bearer {{token}}"}}) as http:
        async with Client(streamable_http_client({url!r}, http_client=http)) as client:
            print([tool.name for tool in (await client.list_tools()).tools])
            print(await client.call_tool("add", {{"a": 1, "b": 2}}))
            print(await client.call_tool("delete_note", {{"name": "draft"}}))  # denied: this raises

asyncio.run(main())
"""


class Try(NamedTuple):
    """A line for a shell, and what comes of it."""

    line: str
    answer: str


def tries(workspace: Workspace, graph: Graph) -> tuple[Try, ...]:
    """Return what to try with the host that an authorization server protects."""
    curl = f"curl -i --cacert {workspace.ca} https://localhost:{graph.https.port}"
    return (
        Try(
            f"{curl}/allow",
            "200: the authorization server allows paths that contain 'allow'; see Auth-Handler in the answer",
        ),
        Try(f"{curl}/secret", "401: the authorization server denies"),
        Try(f"{curl}/public", "200: authorization is disabled on this route, so nobody is asked"),
    )


def agent_tries(workspace: Workspace, graph: Graph) -> tuple[Try, ...]:
    """Return what to try with the tools that policies protect; empty if the folder has none by now."""
    people, workloads = _port(graph, certificates=False), _port(graph, certificates=True)
    if people is None or workloads is None:
        return ()
    curl = f"curl -i --cacert {workspace.ca}"
    shown = f"--cert {workspace.dev}/janitor.crt --key {workspace.dev}/janitor.key"
    add, delete = _call("add", '{"a":1,"b":2}'), _call("delete_note", '{"name":"draft"}')
    where, there = f"https://localhost:{people}/mcp", f"https://localhost:{workloads}/mcp"
    bearer = '-H "authorization: Bearer $TOKEN"'
    return (
        Try(f"{curl} --json '{add}' {where}", "401: who are you? The answer says who issues tokens"),
        Try(f"TOKEN=$({token_command(workspace)})", "a token of the development issuer"),
        Try(f"{curl} {bearer} --json '{add}' {where}", "200: people may add"),
        Try(f"{curl} {bearer} --json '{delete}' {where}", "403: people may not delete"),
        Try(f"{curl} {shown} --json '{delete}' {there}", "200: the janitor may, by its certificate"),
    )


def agent_program(workspace: Workspace, graph: Graph) -> str:
    """Return a program that uses the tools with the MCP SDK; empty if there are none by now."""
    port = _port(graph, certificates=False)
    if port is None:
        return ""
    url = f"https://localhost:{port}/mcp"
    return _AGENT.format(token=token_command(workspace), ca=str(workspace.ca), url=url)


def token_command(workspace: Workspace) -> str:
    """Return the command that makes a token."""
    return f"{_program()} dev token --folder {workspace.dev} --sub alice --aud notes"


def _port(graph: Graph, *, certificates: bool) -> int | None:
    """Find a port for HTTPS that asks clients for certificates, or one that does not."""
    return next(
        (
            port.where.port
            for port in graph.gateways
            if isinstance(port, SecurePort) and any(chain.clients is not None for chain in port.chains) is certificates
        ),
        None,
    )


def _program() -> str:
    """Return how the user called us: as seen from here, if it is below."""
    called = Path(sys.argv[0])
    if called.name != "authplane":
        return f"{sys.executable} -m authplane"
    relative = os.path.relpath(called)
    return relative if not relative.startswith("..") else str(called)


def _call(tool: str, arguments: str) -> str:
    return _CALL.format(tool=tool, arguments=arguments)
