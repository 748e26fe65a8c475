"""A gateway before MCP servers: the real Envoy, the policies of a folder, and official SDKs at both ends."""

import json
import ssl
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.support.certificates import authority, ca_secret, server, tls_secret
from tests.support.envoy.releases import INSTALLED, Version
from tests.support.eventually import START_LIMIT, eventually, listening
from tests.support.gateways.contour_gateway import service
from tests.support.mcp.mcp_checks import workload
from tests.support.mcp.tool_server import ToolServer, tool_server
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.authserver.backends.runtime.policy_server import KeptPolicies, keep_policies
from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan, PolicyPlan
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.render.rendered import render_graph
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.issuer import Schedule
from authplane.policy.identity.tokens.key_lifetime import Bounds
from authplane.policy.verdicts.verdict import Grounds, Verdict
from authplane.runtime.child_processes import Child, Line, run_process
from authplane.runtime.envoy_process import Envoy, run_envoy
from authplane.runtime.servers.listen import TcpAddress, UnixAddress

ALLOW: Final = "  unprotectedBackends: Allow"
"""Settings with which Backends without a policy are open."""
HURRIED: Final = Schedule(between=0.05, first_retry=0.05, bounds=Bounds(shortest=0.2, usual=0.2, longest=0.2))
OLD_VERSION: Final = "2025-06-18"


def backend(name: str, annotations: str = "") -> str:
    """Return an MCP server; ``annotations`` is YAML in flow style, without braces."""
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec: {{type: MCP, mcp: {{serviceName: {name}, port: 80}}}}
"""


def policy(rules: str, *targets: str, name: str = "") -> str:
    """Return a policy for Backends; ``rules`` is YAML in flow style."""
    aims = targets or ("shop",)
    refs = ", ".join(f"{{group: agentic.networking.x-k8s.io, kind: Backend, name: {each}}}" for each in aims)
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: {name or "-".join(aims)}}}
spec:
  targetRefs: [{refs}]
  rules: {rules}
"""


@dataclass
class McpGateway:
    """Everything that runs."""

    folder: Path
    http: int
    https: int
    origins: Mapping[str, ToolServer]
    decided: list[tuple[Request, Grounds]] = field(default_factory=list)
    envoy: Envoy | None = None
    lines: list[str] = field(default_factory=list)
    """What Envoy writes: its access log among it."""

    async def hear(self, line: Line) -> None:
        """Keep a line of Envoy."""
        self.lines.append(line.text)

    async def counters(self, contains: str) -> dict[str, int]:
        """Return what Envoy has counted under names that have a text in them, if it is not nothing."""
        assert self.envoy is not None
        page = (await self.envoy.admin("/stats?usedonly")).body
        lines = (line.rpartition(": ") for line in page.splitlines() if contains in line and "Quantile" not in line)
        return {name: int(count) for name, _, count in lines if int(count) and ".policy." in name}

    @property
    def url(self) -> str:
        """Where clients without certificates go."""
        return f"http://127.0.0.1:{self.http}"

    @property
    def secure_url(self) -> str:
        """Where clients show their certificates."""
        return f"https://localhost:{self.https}"

    def write(self, name: str, text: str) -> None:
        draft = self.folder / f".{name}.new"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.folder / name)

    def http_client(self, *, token: str = "", spiffe_id: str = "", **more: Any) -> httpx2.AsyncClient:
        """Return a client that shows a token or a certificate."""
        tls = ssl.create_default_context(cadata=authority().certificate.decode())
        if spiffe_id:
            pair = workload(spiffe_id)
            certificate = self.folder.parent / "client.pem"
            certificate.write_bytes(pair.certificate + pair.key.reveal())
            tls.load_cert_chain(certificate)
        base = self.secure_url if spiffe_id else self.url
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx2.AsyncClient(base_url=base, verify=tls, headers=headers, timeout=10, **more)

    @asynccontextmanager
    async def mcp(self, http: httpx2.AsyncClient, *, path: str = "/shop", old: bool = False) -> AsyncGenerator[Client]:
        """Connect with the official client, with the newest protocol or with an old one."""
        if old:
            http.event_hooks["request"].append(_speak_old)
        url = f"{str(http.base_url).rstrip('/')}{path}"
        async with Client(
            streamable_http_client(url, http_client=http), mode="legacy" if old else "auto", cache=None
        ) as client:
            assert (client.protocol_version == OLD_VERSION) == old
            yield client

    async def call(self, http: httpx2.AsyncClient, tool: str, path: str = "/shop", **arguments: Any) -> httpx2.Response:
        """Call a tool with a single request, as no SDK would; what matters is who answers."""
        return await self.post(http, {"name": tool, "arguments": arguments}, path)

    async def post(self, http: httpx2.AsyncClient, params: Any, path: str = "/shop", **more: Any) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": "x-7", "method": "tools/call", "params": params}
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        return await http.post(path, content=json.dumps(message).encode(), headers=headers | more.get("headers", {}))


async def _speak_old(request: httpx2.Request) -> None:
    """Offer an older version than the SDK would; all that follows is up to the SDK."""
    body = await request.aread()
    if b'"initialize"' in body:
        changed = body.replace(b"2025-11-25", OLD_VERSION.encode())
        assert changed != body
        request.stream = httpx2.ByteStream(changed)


def configuration(folder: Path, issuers: Iterable[str], more: str) -> str:
    """Write the settings; an issuer is its address, or all that is set of it in braces."""
    reach = "allowPrivateNetwork: true, caSecret: {name: ca, namespace: default}"
    listed = ", ".join(each if each.startswith("{") else f"{{url: {each}, {reach}}}" for each in issuers)
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  gateway: {{address: 127.0.0.1}}
  policyServer: {{address: "unix:{folder}/policy.sock"}}
  issuers: [{listed}]
{more}
"""


def gateway(http: int, https: int) -> str:
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: edge}}
spec:
  gatewayClassName: authplane
  listeners:
  - {{name: plain, port: {http}, protocol: HTTP}}
  - name: secure
    port: {https}
    protocol: HTTPS
    tls: {{certificateRefs: [{{name: tls}}], frontendValidation: {{caCertificateRefs: [{{name: ca}}]}}}}
"""


def route(path: str, shares: Mapping[str, int]) -> str:
    refs = ", ".join(
        f"{{group: agentic.networking.x-k8s.io, kind: Backend, name: {name}, weight: {weight}}}"
        for name, weight in shares.items()
    )
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {path}}}
spec:
  parentRefs: [{{name: edge}}]
  rules:
  - matches: [{{path: {{value: /{path}}}}}]
    filters: [{{type: URLRewrite, urlRewrite: {{path: {{type: ReplacePrefixMatch, replacePrefixMatch: /mcp}}}}}}]
    backendRefs: [{refs}]
"""


@asynccontextmanager
async def mcp_gateway(  # noqa: PLR0913 (tests differ in each of them)
    root: Path,
    policies: str,
    *,
    backends: tuple[str, ...] = ("shop",),
    issuers: tuple[str, ...] = (),
    settings: str = "",
    routes: tuple[str, ...] = (),
    more: tuple[str, ...] = (),
    keys: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    envoy: Version = INSTALLED,
) -> AsyncGenerator[McpGateway]:
    """Run Envoy and one MCP server for each Backend; who decides is up to the test.

    ``keys`` are the key sets of issuers that Envoy is given; ``annotations`` are those of Backends, by name.
    """
    folder = root / "resources"
    folder.mkdir()
    async with AsyncExitStack() as stack:
        origins = {name: await stack.enter_async_context(tool_server(name)) for name in backends}
        made = McpGateway(folder=folder, http=free_port(), https=free_port(), origins=origins)
        documents = [
            configuration(root, issuers, settings),
            gateway(made.http, made.https),
            tls_secret("tls", server("localhost")),
            ca_secret("ca"),
            *more,
            *(
                text
                for name in backends
                for text in (backend(name, (annotations or {}).get(name, "")), service(name, origins[name].port))
            ),
            *(routes or (route(name, {name: 1}) for name in backends)),
        ]
        made.write("gateway.yaml", "\n---\n".join(documents))
        made.write("policies.yaml", policies)
        generation = World([*documents, policies], keys=keys).generation
        assert not [each for each in generation.findings if each.problem.severity.value == "error"]
        config = json_text(static_bootstrap(render_graph(generation.built.graph, envoy.release)))
        running = await stack.enter_async_context(run_envoy(config, sink=made.hear, settings=envoy.settings()))
        await running.ready(limit=START_LIMIT)
        made.envoy = running
        await listening(TcpAddress(host="127.0.0.1", port=made.http))
        yield made


@asynccontextmanager
async def deciding(it: McpGateway, schedule: Schedule = HURRIED) -> AsyncGenerator[KeptPolicies]:
    """Decide by the policies of the folder, in this process."""

    def heard(made: Answer, verdict: Verdict) -> None:
        assert isinstance(made.request, Request)
        it.decided.append((made.request, verdict.grounds))

    metrics = Metrics()
    plan = PolicyPlan(folder=str(it.folder), loosen_after=0)
    async with keep_policies("policy", plan, metrics, schedule=schedule) as kept:
        settings = FrontPlan(address=UnixAddress(path=str(it.folder.parent / "policy.sock")))
        observer = Observer("policy", metrics.checks("policy"), verdicts=(kept.counts.record, heard))
        async with serve_authz(kept.backend, settings, observer=observer, perform=kept.perform):

            async def ready() -> bool:
                return not kept.obstacle()

            await eventually(ready)
            yield kept


@asynccontextmanager
async def deciding_apart(it: McpGateway, *options: str) -> AsyncGenerator[tuple[Child, list[Line]]]:
    """Decide by the policies of the folder, in a process of its own."""
    lines: list[Line] = []

    async def sink(line: Line) -> None:
        lines.append(line)

    socket = UnixAddress(path=str(it.folder.parent / "policy.sock"))
    argv = [sys.executable, "-m", "authplane", "authserver", "policy", str(it.folder), "--address", str(socket)]
    argv += ["--metrics-address", "", "--log-format", "json", "--loosen-after", "0", *options]
    async with run_process(argv, sink=sink) as child:

        async def listens() -> bool:
            assert child.status is None, lines
            return any("authorization service listening" in line.text for line in lines)

        await eventually(listens)
        yield child, lines
