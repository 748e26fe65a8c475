"""Which headers of a client reach an origin, through a real Envoy."""

import json
from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from datetime import datetime
from typing import ClassVar, NamedTuple

import httpx2
import pytest
import pytest_asyncio
from tests.support.authservers.told_checks import Told
from tests.support.certificates import server, tls_secret
from tests.support.eventually import START_LIMIT
from tests.support.gateways.contour_gateway import service
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.devkit.local.echo_origin import serve_echo
from authplane.policy.check.decision import Allow, Decision
from authplane.policy.check.request import Request
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import TcpAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")

LISTENERS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: test}
spec:
  listeners: {http: {address: 127.0.0.1, port: PORT}}
  contour: {allowInsecureAuthorization: true}
"""
EXTENSIONS = """
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {name: silent}
spec: {protocol: h2c, services: [{name: silent, port: 80}]}
---
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {name: over-http}
spec: {protocol: http/1.1, services: [{name: over-http, port: 80}]}
"""
TO_ECHO = "services: [{name: echo, port: 80}]"
PROXIES = f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: grpc}}
spec:
  virtualhost: {{fqdn: grpc.example, authorization: {{extensionRef: {{name: silent}}, responseTimeout: 5s}}}}
  routes:
  - {TO_ECHO}
  - {{conditions: [{{prefix: /off}}], authPolicy: {{disabled: true}}, {TO_ECHO}}}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: http}}
spec:
  virtualhost:
    fqdn: http.example
    authorization:
      extensionRef: {{name: over-http}}
      responseTimeout: 5s
      serviceType: http
      httpSettings:
        allowedAuthorizationHeaders: [{{exact: x-read}}]
        allowedUpstreamHeaders: [{{exact: x-user}}, {{prefix: x-role-}}, {{exact: x-read}}, {{exact: authorization}}]
  routes:
  - {TO_ECHO}
  - {{conditions: [{{prefix: /off}}], authPolicy: {{disabled: true}}, {TO_ECHO}}}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: tls}}
spec:
  virtualhost: {{fqdn: tls.example, tls: {{secretName: tls}}, authorization: {{extensionRef: {{name: silent}}}}}}
  routes:
  - {TO_ECHO}
  - {{conditions: [{{prefix: /off}}], permitInsecure: true, authPolicy: {{disabled: true}}, {TO_ECHO}}}
---
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: open}}
spec:
  virtualhost: {{fqdn: open.example}}
  routes: [{{{TO_ECHO}}}]
"""
SENT = {
    "auth-handler": "spoofed",
    "auth-username": "spoofed",
    "Auth-Realm": "spoofed",
    "Auth-Context-Role": "spoofed",
    "x-user": "spoofed",
    "x-role-admin": "spoofed",
    "x-read": "spoofed",
    "authorization": "spoofed",
    "auth-token": "spoofed",
}
OURS = {"auth-handler", "auth-username", "auth-realm", "auth-context-role"}
ALL = {name.lower() for name in SENT}


class Silent:
    """Allows everything and sets no header."""

    name: ClassVar = "silent"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        return Allow()


def answer(_request: HttpRequest) -> HttpResponse:
    """Allow everything, as somebody."""
    return HttpResponse(status=200, headers=(("x-user", "somebody"), ("content-length", "0")), body=b"")


async def _ignore(_line: Line) -> None:
    pass


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncGenerator[httpx2.AsyncClient]:
    async with running() as found:
        yield found


@asynccontextmanager
async def running() -> AsyncGenerator[httpx2.AsyncClient]:
    here, port = TcpAddress(host="127.0.0.1", port=0), free_port()
    async with (
        serve_echo(here) as echo,
        serve_authz(Silent(), FrontPlan(address=here), observer=Told()) as silent,
        serve_http(here, answer) as over_http,
    ):
        ports = {"echo": echo, "silent": silent, "over-http": over_http}
        services = [service(name, each.port) for name, each in ports.items() if isinstance(each, TcpAddress)]
        secret = tls_secret("tls", server("tls.example"))
        world = World([LISTENERS.replace("PORT", str(port)), EXTENSIONS, PROXIES, secret, *services])
        assert world.problems("HTTPProxy") == []
        config = json_text(static_bootstrap(world.generation.rendered))
        async with (
            run_envoy(config, sink=_ignore, settings=EnvoySettings(concurrency=1, log_level="error")) as envoy,
            httpx2.AsyncClient(timeout=10, base_url=f"http://127.0.0.1:{port}") as client,
        ):
            await envoy.ready(limit=START_LIMIT)
            yield client


class Case(NamedTuple):
    host: str
    path: str
    stripped: AbstractSet[str]
    told: AbstractSet[str] = frozenset()


CASES = {
    "checked over gRPC": Case("grpc.example", "/", OURS),
    "disabled": Case("grpc.example", "/off", OURS),
    "disabled and insecure on a host with TLS": Case("tls.example", "/off", OURS),
    "no authorization": Case("open.example", "/", set()),
    "checked over HTTP": Case("http.example", "/", OURS | {"x-role-admin"}, {"x-user"}),
    "disabled, with headers of an HTTP service": Case(
        "http.example", "/off", OURS | {"x-user", "x-role-admin", "x-read"}
    ),
}


@pytest.mark.real
@pytest.mark.requirement("E01")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_client_cannot_send_what_the_authorization_service_sets(case: Case, client: httpx2.AsyncClient) -> None:
    answer = await client.get(case.path, headers={"host": case.host, **SENT})
    assert answer.status_code == 200
    seen = {name.lower(): value for name, value in json.loads(answer.text)["headers"]}
    assert {name for name in ALL if seen.get(name) == "spoofed"} == ALL - case.stripped - case.told
    assert {name: seen[name] for name in case.told} == dict.fromkeys(case.told, "somebody")
