"""What to try with the quickstart: command lines with the response that the current resources give."""

import os
import sys
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from authplane.authserver.backends.testserver import Mode
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.match_model import Exact, Prefix, Regex, Segments
from authplane.controlplane.graph.model.port_model import SecurePort
from authplane.controlplane.graph.model.route_authorization import Disabled, Enforced, FailClosed
from authplane.controlplane.graph.model.route_model import Forward, Route
from authplane.controlplane.serving.generation import Generation
from authplane.core.values import dataclass
from authplane.devkit.local.needed_parts import Part
from authplane.devkit.local.workspace import WORKLOAD, Workspace
from authplane.devkit.policies.check_records import http_status
from authplane.devkit.policies.checking import Circumstances, check
from authplane.devkit.policies.request_files import AskedRequest, AssumedToken
from authplane.policy.attached.request_target import parse_target
from authplane.policy.check.request import Request
from authplane.runtime.servers.listen import TcpAddress

TOOLS_ADDRESS: Final = TcpAddress(host="127.0.0.1", port=9082)
ISSUER_ADDRESS: Final = TcpAddress(host="127.0.0.1", port=9445)

_HOST: Final = "localhost"
_TOKEN: Final = "--sub alice --aud notes"  # noqa: S105 (options, no password)
_CLAIMS: Final = {"sub": "alice", "aud": "notes"}
_CALLS: Final = {"add": '{"a":1,"b":2}', "delete_note": '{"name":"draft"}'}
_CALL: Final = """\
{{"jsonrpc":"2.0","id":1,"method":"tools/call",
  "params":{{"name":"{tool}","arguments":{arguments}}}}}"""
_AGENT: Final = """\
TOKEN=$({token}) \\
  {python} - <<'END'
import asyncio, os, ssl
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

tls = ssl.create_default_context(cafile={ca!r})
headers = {{"authorization": f"Bearer {{os.environ['TOKEN']}}"}}
calls = {{"add": {{"a": 1, "b": 2}}, "delete_note": {{"name": "welcome"}}}}

async def main(url):
    async with (
        httpx2.AsyncClient(verify=tls, headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        for tool, arguments in calls.items():
            try:
                result = await client.call_tool(tool, arguments)
                print(f"{{tool}}: {{result.content[0].text}}")
            except MCPError as error:
                print(f"{{tool}}: {{error}}")

asyncio.run(main({url!r}))
END"""


class Try(NamedTuple):
    """A command for a shell, and its outcome."""

    line: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickstartState:
    """What runs at the moment."""

    workspace: Workspace
    generation: Generation
    parts: Collection[Part]
    """The programs that run beside the gateway."""
    mode: Mode = Mode.PATH


def tries(given: QuickstartState) -> tuple[Try, ...]:
    """Return commands for the host that an authorization service protects; only those whose outcome is known."""
    return tuple(_tries(given))


def agent_tries(given: QuickstartState, now: datetime) -> tuple[Try, ...]:
    """Return commands for the MCP server that policies protect; only those whose outcome is known."""
    return tuple(_agent_tries(given, now))


def agent_program(given: QuickstartState) -> str:
    """Return a program for a shell that uses the tools with the MCP SDK; empty if the folder serves none."""
    place = _tools(given, certificates=False)
    if place is None or not {Part.TOOLS, Part.ISSUER} <= set(given.parts):
        return ""
    return _AGENT.format(
        token=token_command(given.workspace),
        python=_here(Path(sys.executable)),
        ca=str(given.workspace.ca),
        url=place.url,
    )


def token_command(workspace: Workspace) -> str:
    """Return the command that makes a token."""
    return f"{_program()} dev token --folder {workspace.dev} {_TOKEN}"


def _tries(given: QuickstartState) -> Iterator[Try]:
    https = given.generation.built.graph.https.port
    curl = f"curl -i --cacert {given.workspace.ca} https://{_HOST}:{https}"
    hosts = (
        host for port in given.generation.built.graph.proxies if isinstance(port, SecurePort) for host in _hosts(port)
    )
    host = next((each for each in hosts if each.name == _HOST), None)
    if host is None or Part.ECHO not in given.parts:
        return
    if _is_checked(_route(host, "/allow"), given):
        yield Try(f"{curl}/allow", '200: the authorization service grants requests whose path contains "allow"')
    if _is_checked(_route(host, "/secret"), given) and given.mode is Mode.PATH:
        yield Try(f"{curl}/secret", "401: the authorization service denies requests for other paths")
    public = _route(host, "/public")
    if public is not None and public.authorizations == (Disabled(),):
        yield Try(f"{curl}/public", "200: authorization is disabled on this route")


def _is_checked(route: Route | None, given: QuickstartState) -> bool:
    """Tell whether the authorization service that runs here decides requests of a route."""
    if route is None or Part.AUTHSERVER not in given.parts:
        return False
    [checked] = route.authorizations if len(route.authorizations) == 1 else [None]
    return (
        isinstance(checked, Enforced)
        and not checked.service.by_policies
        and isinstance(checked.service.on_failure, FailClosed)
    )


class _Tools(NamedTuple):
    """Where an MCP server is served."""

    url: str
    path: str
    checked: Enforced


def _agent_tries(given: QuickstartState, now: datetime) -> Iterator[Try]:
    people, workloads = _tools(given, certificates=False), _tools(given, certificates=True)
    curl = f"curl -i --cacert {given.workspace.ca}"
    if people is not None and Part.TOOLS in given.parts:
        bearer = '-H "authorization: Bearer $TOKEN"'
        yield from _outcome(f"{curl} {people.url}", _asked(people, "add"), given, now, "a request without a token")
        if Part.ISSUER in given.parts:
            yield Try(f"TOKEN=$({token_command(given.workspace)})", "a token of the development issuer")
            for tool in _CALLS:
                asked = _asked(people, tool, token=_token(given))
                yield from _outcome(
                    f"{curl} {people.url} \\\n  {bearer}", asked, given, now, "alice, whom the token identifies"
                )
    if workloads is not None and Part.TOOLS in given.parts:
        shown = f"--cert {given.workspace.dev}/janitor.crt --key {given.workspace.dev}/janitor.key"
        asked = _asked(workloads, "delete_note", spiffe_id=WORKLOAD)
        yield from _outcome(
            f"{curl} {workloads.url} \\\n  {shown}", asked, given, now, "the janitor, whom the certificate identifies"
        )


def _outcome(start: str, asked: AskedRequest, given: QuickstartState, now: datetime, who: str) -> Iterator[Try]:
    """Yield a command with the outcome that the policies of the folder give it."""
    verdict = check(given.generation.compiled.policies, asked, Circumstances(now=now)).verdict
    tool = verdict.grounds.tool
    said = {
        None: f"200: the policy grants {tool} to {who}",
        401: f"401: the policy denies {tool} to {who}; the header www-authenticate names the URL where clients"
        " find the issuer",
        403: f"403: the policy denies {tool} to {who}",
    }.get(http_status(verdict.decision))
    if said is not None and tool:
        yield Try(f"{start} \\\n  --json '{asked.request.body.decode()}'", said)


def _asked(place: _Tools, tool: str, *, token: AssumedToken | None = None, spiffe_id: str = "") -> AskedRequest:
    context = dict(place.checked.context)
    request = Request(
        method="POST",
        scheme="https",
        host=_HOST,
        path=place.path,
        headers=(("content-type", "application/json"), ("accept", "application/json")),
        context=context,
        body=_CALL.format(tool=tool, arguments=_CALLS[tool]).encode(),
    )
    target = parse_target(context.get("authplane.target"), context.get("authplane.gateway"))
    return AskedRequest(target=target, request=request, token=token, spiffe_id=spiffe_id)


def _token(given: QuickstartState) -> AssumedToken:
    issuers = [each.url.url for each in given.generation.compiled.policies.issuers]
    return AssumedToken(issuers[0] if issuers else "", _CLAIMS)


def _tools(given: QuickstartState, *, certificates: bool) -> _Tools | None:
    """Find an MCP server on a port that requires client certificates, or on one that does not."""
    for port in given.generation.built.graph.gateways:
        if not isinstance(port, SecurePort) or _demands(port) is not certificates:
            continue
        for host in _hosts(port):
            for route in host.routes if host.name in {ANY, _HOST} else ():
                checked, action, path = route.authorizations[0], route.action, route.match.path
                if (
                    isinstance(action, Forward)
                    and action.targets[0].mcp
                    and isinstance(checked, Enforced)
                    and not isinstance(path, Regex)
                ):
                    return _Tools(f"https://{_HOST}:{port.where.port}{path.path}", path.path, checked)
    return None


def _demands(port: SecurePort) -> bool:
    return any(chain.clients is not None for chain in port.chains)


def _hosts(port: SecurePort) -> Iterator[Host]:
    return (host for table in port.tables for host in table.hosts)


def _route(host: Host, path: str) -> Route | None:
    """Return the route of a GET request without further headers; None if conditions make that uncertain."""
    for route in host.routes:
        match route.match.path:
            case Exact(text):
                found = path == text
            case Prefix(text):
                found = path.startswith(text)
            case Segments(text):
                found = path == text or path.startswith(f"{text}/") or text in {"", "/"}
            case Regex():
                return None
        if found:
            certain = not route.match.headers and not route.match.query and isinstance(route.action, Forward)
            return route if certain else None
    return None


def _program() -> str:
    """Return the command that the user called."""
    called = Path(sys.argv[0])
    return _here(called) if called.name == "authplane" else f"{_here(Path(sys.executable))} -m authplane"


def _here(path: Path) -> str:
    """Return a path relative to the current folder if it is below."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
