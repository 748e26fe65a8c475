"""A gateway before an MCP server, as the product runs it: control plane, policy server and Envoy, each a program."""

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf import json_format
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import gateway, policy, route
from tests.support.mcp.mcp_checks import AGENT, call_body, workload
from tests.support.ports import free_port

from authplane.controlplane.render.envoy_bootstrap import ControlPlane, UnixSocket, ads_bootstrap
from authplane.devkit.local.dev_issuer import RunningIssuer, dev_token
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import envoy_binary
from authplane.runtime.servers.listen import TcpAddress, UnixAddress
from authplane.runtime.wait_until_listening import reachable
from bench.h2load import Posted
from bench.processes import started_here

TYPES: Final = "type.googleapis.com/envoy.extensions"
_TOOLS: Final = (
    f"[{{source: {{type: SPIFFE, spiffe: '{AGENT}'}}, authorization: [{{type: InlineTools, tools: [add]}}]}}]"
)
_EXPRESSION: Final = 'request.mcp.tool_name.startsWith("read_") && identity.group == "admin"'
HEADERS: Final = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "accept-encoding": "gzip, deflate",
    "user-agent": "python-httpx2/2.16.0",
    "mcp-protocol-version": "2025-11-25",
    "mcp-session-id": "0123456789abcdef0123456789abcdef",
}
"""As a client of MCP sends them."""
_HTTP2: Final = {"projectcontour.io/upstream-protocol.h2c": "80"}
_CALL_OUT: Final = {"authplane.dev/placement": "CallOut"}


class Ports(NamedTuple):
    """Where a gateway is reached: without TLS, with it, and by those who leave TLS to a proxy with a certificate."""

    plain: int
    secure: int
    proxied: int


class Site(NamedTuple):
    """A running gateway, and the programs that its requests cost something."""

    ports: Ports
    gateway: frozenset[int]
    deciding: frozenset[int]
    """The policy server, or whoever stands in for it."""


def documents(upstream: int, ports: Ports, policy_server: str, issuer: RunningIssuer) -> list[str]:
    """Return a gateway with five backends, which are all the same server."""
    oidc = f"{{type: OIDC, oidc: {{issuerUrl: '{issuer.url}', audiences: [shop]}}}}"
    claims = f"[{{source: {oidc}, authorization: [{{type: CEL, cel: '{_EXPRESSION}'}}]}}]"
    protected = {
        "tools": (_TOOLS, {}),
        "claims": (claims, {}),
        "tools-asked": (_TOOLS, _CALL_OUT),
        "claims-asked": (claims, _CALL_OUT),
    }
    return [
        configuration(policy_server, f"{{url: '{issuer.url}', caFile: '{issuer.ca_file}', allowPrivateNetwork: true}}"),
        gateway(ports.plain, ports.secure),
        tls_secret("tls", server("localhost")),
        ca_secret("ca"),
        # Over HTTP/1.1 a request takes the gateway 70 µs more, whoever decides.
        service("mcp", upstream).replace("{name: mcp,", f"{{name: mcp, annotations: {json.dumps(_HTTP2)},", 1),
        backend("open"),
        route("open", {"open": 1}),
        *(
            text
            for name, (rules, chosen) in protected.items()
            for text in (backend(name, chosen), route(name, {name: 1}), policy(rules, name))
        ),
    ]


def configuration(policy_server: str, issuers: str = "") -> str:
    """Return the settings."""
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  unprotectedBackends: Allow
  gateway: {{address: 127.0.0.1}}
  policyServer: {{address: "{policy_server}"}}
  issuers: [{issuers}]
"""


def backend(name: str, chosen: Mapping[str, str] | None = None) -> str:
    """Return a backend that chooses this in its annotations."""
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: {name}, annotations: {json.dumps(chosen or {})}}}
spec: {{type: MCP, mcp: {{serviceName: mcp, port: 80}}}}
"""


def calls(ports: Ports, folder: Path) -> dict[str, Posted]:
    """Return a call of a tool for everything that is compared."""
    token = dev_token(
        folder, {"sub": "alice", "aud": "shop", "group": "admin"}, now=datetime.now(UTC), lifetime=timedelta(hours=1)
    )
    add, read = call_body("add", a=1, b=2), call_body("read_file", path="/a")
    known = HEADERS | {"authorization": f"Bearer {token}"}
    plain, secure = f"http://127.0.0.1:{ports.plain}", f"http://127.0.0.1:{ports.proxied}"
    return {
        "open": Posted(f"{plain}/open", read, known),
        "open, TLS": Posted(f"{secure}/open", add, HEADERS),
        "tools, native": Posted(f"{secure}/tools", add, HEADERS),
        "claims, native": Posted(f"{plain}/claims", read, known),
        "tools, call-out": Posted(f"{secure}/tools-asked", add, HEADERS),
        "claims, call-out": Posted(f"{plain}/claims-asked", read, known),
    }


@asynccontextmanager
async def running(folder: Path, ports: Ports, binary: Path | None = None) -> AsyncGenerator[frozenset[int]]:
    """Run the control plane of a folder and an Envoy that it tells everything; yields the processes of Envoy."""
    xds = UnixAddress(path=str(folder.parent / f"{folder.name}.sock"))
    # Several run at a time, and would all serve metrics at the same address.
    quiet = ["--metrics-address", ""]
    argv = [sys.executable, "-m", "authplane", "control", str(folder), "--address", str(xds), *quiet]
    async with run_process(argv, sink=_ignore):
        # It waits for keys of issuers, which some are not there for.
        await reachable(xds, limit=60)
        before = started_here()
        bootstrap = ads_bootstrap(ControlPlane(where=UnixSocket(xds.path), delta=True), node="bench")
        file = folder.parent / f"{folder.name}.json"
        async with envoy(json_format.MessageToJson(bootstrap), file, binary=binary):
            await reachable(TcpAddress(host="127.0.0.1", port=ports.plain), limit=30)
            yield started_here() - before


@asynccontextmanager
async def whole_gateway(root: Path, core: int, issuer: RunningIssuer, binary: Path) -> AsyncGenerator[tuple[Site, int]]:
    """Run a gateway with our policy server; yields it, and the port of the server behind it."""
    ports, folder, socket = Ports(free_port(), free_port(), free_port()), root / "gateway", f"unix:{root}/policy.sock"
    async with beside(core, root, [ports]) as upstream:
        folder.mkdir()
        texts = documents(upstream, ports, socket, issuer)
        await asyncio.to_thread((folder / "gateway.yaml").write_text, "\n---\n".join(texts), encoding="utf-8")
        async with policy_server(folder, socket) as deciding, running(folder, ports, binary) as gateway_processes:
            yield Site(ports, gateway_processes, deciding), upstream


@asynccontextmanager
async def policy_server(folder: Path, address: str) -> AsyncGenerator[frozenset[int]]:
    """Run the policy server of a folder on pyvoy, without a log; yields its processes."""
    before = started_here()
    argv = [sys.executable, "-m", "authplane", "authserver", "policy", str(folder), "--address", address]
    async with run_process([*argv, "--metrics-address", "", "--decision-log", ""], sink=_ignore):
        await reachable(UnixAddress(path=address.removeprefix("unix:")), limit=20)
        yield started_here() - before


@asynccontextmanager
async def beside(
    core: int, folder: Path, proxies: Iterable[Ports], *, most_bytes: int | None = None
) -> AsyncGenerator[int]:
    """Run what is not measured on the core of the load: a server that says yes to all, and clients' proxies.

    The proxies show a certificate, which h2load cannot. With ``most_bytes`` the server reads a body of up to so many
    bytes before it answers; otherwise it answers without the body, and resets large requests. Yields the server's port.
    """
    upstream = free_port()
    config = {"static_resources": {
        "listeners": [
            listener(upstream, _answering(most_bytes)), *(listener(each.proxied, _piping(each)) for each in proxies),
        ],
        "clusters": [_certified(each) for each in proxies],
    }}  # fmt: skip
    async with envoy(json.dumps(config), folder / "beside.json", core=core):
        await reachable(TcpAddress(host="127.0.0.1", port=upstream), limit=20)
        yield upstream


@asynccontextmanager
async def alone(folder: Path, binary: Path) -> AsyncGenerator[Site]:
    """Run an Envoy that answers every request by itself, as cheaply as it can."""
    ports = Ports(free_port(), 0, 0)
    before = started_here()
    config = {"static_resources": {"listeners": [listener(ports.plain, _answering())]}}
    async with envoy(json.dumps(config), folder / "alone.json", binary=binary):
        await reachable(TcpAddress(host="127.0.0.1", port=ports.plain), limit=20)
        yield Site(ports, started_here() - before, frozenset())


@asynccontextmanager
async def envoy(
    config: str, file: Path, *, core: int | None = None, binary: Path | None = None
) -> AsyncGenerator[None]:
    """Run Envoy with one worker, whose log nobody reads: to read a line for every request would cost as much."""
    await asyncio.to_thread(file.write_text, config, encoding="utf-8")
    where = [] if core is None else ["taskset", "-c", str(core)]
    argv = [
        str(binary or envoy_binary()),
        "-c",
        str(file),
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "-l",
        "error",
    ]
    quiet = [str(shutil.which("sh")), "-c", 'exec "$@" >/dev/null', "sh"]
    async with run_process([*quiet, *where, *argv], sink=_tell):
        yield


def listener(port: int, network_filter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a listener with one filter."""
    return {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "only", "typed_config": network_filter}]}],
    }


def _answering(most_bytes: int | None = None) -> dict[str, Any]:
    whole = {"@type": f"{TYPES}.filters.http.buffer.v3.Buffer", "max_request_bytes": most_bytes}
    reply = {"status": 200, "body": {"inline_string": "{}"}}
    return {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "upstream",
        "route_config": {"virtual_hosts": [
            {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": reply}]},
        ]},
        "http_filters": [
            *([] if most_bytes is None else [{"name": "whole", "typed_config": whole}]),
            {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}},
        ],
    }  # fmt: skip


def _piping(ports: Ports) -> dict[str, Any]:
    kind = f"{TYPES}.filters.network.tcp_proxy.v3.TcpProxy"
    return {"@type": kind, "stat_prefix": "client", "cluster": str(ports.secure)}


def _certified(ports: Ports) -> dict[str, Any]:
    pair = workload(AGENT)
    shown = {
        "certificate_chain": {"inline_string": pair.certificate.decode()},
        "private_key": {"inline_string": pair.key.reveal().decode()},
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": ports.secure}}
    return {
        "name": str(ports.secure),
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": str(ports.secure),
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "transport_socket": {"name": "tls", "typed_config": {
            "@type": f"{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {"alpn_protocols": ["h2"], "tls_certificates": [shown]},
        }},
    }  # fmt: skip


async def _ignore(_line: Line) -> None: ...


async def _tell(line: Line) -> None:
    print(f"  {line.text}", flush=True)
