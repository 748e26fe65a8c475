"""Gateways and Backends behind a real Envoy: origins that say who they are, and a policy server that remembers."""

import json
import ssl
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import httpx2
from tests.support.authservers.told_checks import Told
from tests.support.certificates import authority
from tests.support.eventually import START_LIMIT, listening
from tests.support.gateways.contour_gateway import service
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.policy.check.decision import Decision
from authplane.policy.check.request import Request
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, Respond, serve_http
from authplane.runtime.servers.listen import TcpAddress, UnixAddress


@dataclass(slots=True)
class Remembering:
    """The test backend, which remembers what it was asked."""

    name: ClassVar = "remembering"

    mode: Mode = Mode.ALL
    asked: list[Request] = field(default_factory=list)

    def decide(self, request: Request, now: datetime) -> Decision:
        self.asked.append(request)
        return TestServer(mode=self.mode).decide(request, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What reached an origin."""

    name: str
    request: HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Everything that runs."""

    port: int
    policy: Remembering
    reached: list[Origin]
    client: httpx2.AsyncClient

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def targets(self) -> list[str | None]:
        """Return the Backends that the policy server was asked about."""
        return [request.context.get("authplane.target") for request in self.policy.asked]


def configuration(port: int, folder: Path, more: str = "") -> str:
    """Return settings with which everything stays on this machine."""
    return f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  gateway: {{address: 127.0.0.1, port: {port}, caFile: {folder}/ca.crt{more}}}
  policyServer: {{address: "unix:{folder}/policy.sock"}}
  contour: {{allowLocalExternalNames: true}}
  maxRequestBody: 1000
  unprotectedBackends: Allow
"""


def backend(name: str, mcp: str = "") -> str:
    """Return a Backend for the origin of the same name."""
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: Backend
metadata: {{name: {name}}}
spec: {{mcp: {mcp or f"{{serviceName: {name}, port: 80}}"}}}
"""


def policy(*backends: str, source: str = "") -> str:
    """Return a policy for Backends."""
    refs = ", ".join(f"{{kind: Backend, name: {each}}}" for each in backends)
    who = source or '{type: SPIFFE, spiffe: "spiffe://cluster.local/agent"}'
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: AccessPolicy
metadata: {{name: {"-".join(backends)}}}
spec:
  targetRefs: [{refs}]
  rules: [{{source: {who}, authorization: [{{type: InlineTools, tools: [add]}}]}}]
"""


@asynccontextmanager
async def served(  # noqa: PLR0913 (tests differ in each of them)
    documents: Iterable[str],
    folder: Path,
    *,
    origins: Iterable[str] = ("weather",),
    mode: Mode = Mode.ALL,
    decides: bool = True,
    settings: str = "",
    port: int = 0,
) -> AsyncGenerator[Served]:
    """Serve documents; ``settings`` are more of those about Gateways, and without ``decides`` no policy server runs."""
    port = port or free_port()
    reached: list[Origin] = []
    asked = Remembering(mode=mode)
    (folder / "ca.crt").write_bytes(authority().certificate)
    async with AsyncExitStack() as stack:
        texts = [configuration(port, folder, settings), *documents]
        for name in origins:
            taken = await stack.enter_async_context(
                serve_http(TcpAddress(host="127.0.0.1", port=0), _origin(name, reached))
            )
            assert isinstance(taken, TcpAddress)
            texts.append(service(name, taken.port))
        if decides:
            address = FrontPlan(address=UnixAddress(path=str(folder / "policy.sock")))
            await stack.enter_async_context(serve_authz(asked, address, observer=Told()))
        generation = World(texts).generation
        config = json_text(static_bootstrap(generation.rendered))
        envoy = await stack.enter_async_context(
            run_envoy(config, sink=_ignore, settings=EnvoySettings(concurrency=1, log_level="error"))
        )
        await envoy.ready(limit=START_LIMIT)
        await listening(TcpAddress(host="127.0.0.1", port=port))
        client = await stack.enter_async_context(httpx2.AsyncClient(timeout=5))
        yield Served(port=port, policy=asked, reached=reached, client=client)


def _origin(name: str, reached: list[Origin]) -> Respond:
    def respond(request: HttpRequest) -> HttpResponse:
        reached.append(Origin(name=name, request=request))
        body = {"origin": name, "path": request.target, "host": request.header("host"), "headers": request.headers}
        return HttpResponse(status=200, headers=(("content-type", "application/json"),), body=json.dumps(body).encode())

    return respond


async def _ignore(_line: Line) -> None:
    pass


def trusting(certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """Return TLS for a client that trusts the CA of the tests, with a certificate or without."""
    context = ssl.create_default_context(cadata=authority().certificate.decode())
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context
