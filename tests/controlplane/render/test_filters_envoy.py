"""What the rendered filters do in a real Envoy: every request asks the service of its own host, in the way that is set.

The hosts are plain HTTP ones: they share a connection manager, which is where it could go wrong.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

import httpx2
import pytest
from tests.support.authservers.told_checks import Told
from tests.support.eventually import START_LIMIT, eventually
from tests.support.gateways.contour_gateway import service
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.core.header_edits import HeaderEdits
from authplane.devkit.local.echo_origin import serve_echo
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import Envoy, EnvoySettings, run_envoy
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import TcpAddress

pytestmark = pytest.mark.real

HERE: Final = TcpAddress(host="127.0.0.1", port=0)


@dataclass(slots=True)
class Asked:
    """Allows all but ``/no``, tells the origin who it is, and remembers what it was asked."""

    name: str
    checks: list[Request] = field(default_factory=list)
    requests: list[HttpRequest] = field(default_factory=list)

    def decide(self, request: Request, _now: datetime) -> Decision:
        self.checks.append(request)
        if request.path == "/no":
            return Deny(http_status=401, body=f"{self.name} says no", rule=self.name)
        return Allow(edits=HeaderEdits(set=(("x-checked-by", self.name),)))

    def respond(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        headers = (("x-checked-by", self.name), ("x-secret", "not for the origin"))
        return HttpResponse(status=401 if request.target.endswith("/no") else 200, headers=headers)


@dataclass(slots=True)
class Running:
    """A gateway in front of an origin that shows what reached it."""

    port: int
    client: httpx2.AsyncClient
    envoy: Envoy

    async def get(self, host: str, path: str = "/yes", **headers: str) -> httpx2.Response:
        return await self.client.get(f"http://127.0.0.1:{self.port}{path}", headers={"host": host} | headers)

    async def post(self, host: str, body: bytes) -> httpx2.Response:
        return await self.client.post(f"http://127.0.0.1:{self.port}/yes", headers={"host": host}, content=body)

    async def reached(self, host: str, path: str = "/yes", **headers: str) -> dict[str, str]:
        """Return the headers that the origin saw."""
        answer = await self.get(host, path, **headers)
        assert answer.status_code == 200, answer.text
        return dict(json.loads(answer.text)["headers"])

    async def checked_by(self, host: str) -> str:
        """Return who told the origin that it checked a request; nothing if nobody did."""
        return (await self.reached(host)).get("x-checked-by", "")

    async def count(self, name: str) -> int:
        """Return a counter of the filter."""
        stats = json.loads((await self.envoy.admin(f"/stats?format=json&filter=^http.*ext_authz.{name}$")).body)
        return sum(int(each["value"]) for each in stats["stats"])


def extension(name: str, *, protocol: str = "h2c") -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {{name: {name}}}
spec:
  services: [{{name: {name}, port: 80}}]
  protocol: {protocol}
"""


def proxy(host: str, authorization: str = "", *, annotations: str = "{}", policy: str = "{}") -> str:
    """Return a host without TLS: everything has its policy, and below /open it is disabled."""
    own = f"    authorization: {authorization}\n" if authorization else ""
    return f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: {host}, annotations: {annotations}}}
spec:
  virtualhost:
    fqdn: {host}.example
{own}
  routes:
  - services: [{{name: echo, port: 80}}]
    authPolicy: {policy}
  - conditions: [{{prefix: /open}}]
    services: [{{name: echo, port: 80}}]
    authPolicy: {{disabled: true}}
"""


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def running(folder: Path, documents: Iterable[str], *, contour: str = "{}") -> AsyncGenerator[Running]:
    """Run Envoy with what the documents become."""
    port = free_port()
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(serve_echo(HERE))
        assert isinstance(origin, TcpAddress)
        settings = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: test}}
spec:
  listeners: {{http: {{address: 127.0.0.1, port: {port}}}}}
  contour: {contour}
"""
        world = World([settings, service("echo", origin.port), *documents])
        assert world.problems("HTTPProxy") + world.problems("ExtensionService") == []
        config = folder / "envoy.pb"  # the bytes that Envoy gets over ADS
        config.write_bytes(static_bootstrap(world.generation.rendered).SerializeToString())
        envoy_settings = EnvoySettings(concurrency=1, log_level="error")
        envoy = await stack.enter_async_context(run_envoy(config, sink=_ignore, settings=envoy_settings))
        await envoy.ready(limit=START_LIMIT)
        client = await stack.enter_async_context(httpx2.AsyncClient(timeout=5))
        yield Running(port, client, envoy)


@asynccontextmanager
async def over_grpc(asked: Asked) -> AsyncGenerator[str]:
    """Serve checks over gRPC; yields the documents of the service."""
    async with serve_authz(asked, FrontPlan(address=HERE), observer=Told()) as bound:
        assert isinstance(bound, TcpAddress)
        yield service(asked.name, bound.port) + "---" + extension(asked.name)


@asynccontextmanager
async def over_http(asked: Asked) -> AsyncGenerator[str]:
    """Serve checks over HTTP; yields the documents of the service."""
    async with serve_http(HERE, asked.respond) as bound:
        assert isinstance(bound, TcpAddress)
        yield service(asked.name, bound.port) + "---" + extension(asked.name, protocol="http/1.1")


INSECURE: Final = "{allowInsecureAuthorization: true}"
HTTP: Final = (
    "{extensionRef: {name: %s}, serviceType: http, responseTimeout: 2s, httpSettings: {pathPrefix: /verify, "
    "allowedAuthorizationHeaders: [{exact: X-Ask}], allowedUpstreamHeaders: [{prefix: x-checked}]}}"
)


@pytest.mark.requirement("EN-5")
async def test_each_host_of_a_shared_connection_manager_asks_its_own_service(tmp_path: Path) -> None:
    one, two, three, four = (Asked(name) for name in ("one", "two", "three", "four"))
    async with (
        over_grpc(one) as first,
        over_grpc(two) as second,
        over_http(three) as third,
        over_http(four) as fourth,
        running(
            tmp_path,
            [
                first, second, third, fourth,
                service("gone", free_port()), extension("gone"),
                proxy("a", "{extensionRef: {name: one}, responseTimeout: 2s}", policy="{context: {of: a}}"),
                proxy("b", "{extensionRef: {name: two}, responseTimeout: 2s}"),
                proxy("c", HTTP % "three"),
                proxy("d", HTTP % "four"),
                proxy("e", "{extensionRef: {name: gone}, failOpen: true}"),
                proxy("f", "{extensionRef: {name: gone}}"),
                proxy("g"),
            ],
            contour=INSECURE,
        ) as gateway,
    ):  # fmt: skip
        assert {host: await gateway.checked_by(f"{host}.example") for host in "abcdeg"} == {
            "a": "one", "b": "two", "c": "three", "d": "four", "e": "", "g": "",
        }  # fmt: skip
        refused = {host: (await gateway.get(f"{host}.example", "/no")).status_code for host in "abcdefg"}
        assert refused == {"a": 401, "b": 401, "c": 401, "d": 401, "e": 200, "f": 403, "g": 200}
        before = [len(each.checks) + len(each.requests) for each in (one, two, three, four)]
        assert {(await gateway.get(f"{host}.example", "/open/no")).status_code for host in "abcdefg"} == {200}
        assert [len(each.checks) + len(each.requests) for each in (one, two, three, four)] == before == [2, 2, 2, 2]
    assert [dict(check.context) for check in (*one.checks, *two.checks)] == [{"of": "a"}, {"of": "a"}, {}, {}]


@pytest.mark.requirement("EN-5")
async def test_a_service_asked_over_http_sees_and_says_what_the_rules_allow(tmp_path: Path) -> None:
    asked = Asked("web")
    async with (
        over_http(asked) as documents,
        running(tmp_path, [documents, proxy("a", HTTP % "web")], contour=INSECURE) as gateway,
    ):
        answer = await gateway.get("a.example", "/yes?q", **{"x-ask": "me", "x-other": "you", "cookie": "c=1"})
    assert answer.status_code == 200
    [request] = asked.requests
    seen = dict(request.headers)
    assert (request.target, seen["x-ask"]) == ("/verify/yes?q", "me")
    assert not {"x-other", "cookie"} & seen.keys()
    reached = dict(json.loads(answer.text)["headers"])
    assert (reached["x-checked-by"], "x-secret" in reached) == ("web", False)


async def test_in_shadow_mode_a_denied_request_passes_and_is_counted(tmp_path: Path) -> None:
    asked = Asked("one")
    shadow = "{authplane.dev/authorization-mode: Shadow}"
    block = "{extensionRef: {name: one}, responseTimeout: 2s}"
    async with (
        over_grpc(asked) as documents,
        running(
            tmp_path,
            [documents, proxy("a", block, annotations=shadow), proxy("b", block)],
            contour=INSECURE,
        ) as gateway,
    ):
        assert (await gateway.get("b.example", "/no")).status_code == 401
        assert [(await gateway.get("a.example", path)).status_code for path in ("/no", "/yes")] == [200, 200]
        assert (len(asked.checks), await gateway.count("shadow_denied"), await gateway.count("denied")) == (3, 1, 2)


async def test_in_shadow_mode_a_missing_service_stops_no_request_and_is_counted(tmp_path: Path) -> None:
    documents = [
        service("gone", free_port()),
        extension("gone"),
        proxy("a", "{extensionRef: {name: gone}}", annotations="{authplane.dev/authorization-mode: Shadow}"),
    ]
    async with running(tmp_path, documents, contour=INSECURE) as gateway:
        assert (await gateway.get("a.example")).status_code == 200
        assert await gateway.count("shadow_error") == 1


@pytest.mark.requirement("AZ-18")
@pytest.mark.parametrize("size", [1000, 100_000])
async def test_the_check_sees_as_much_of_the_body_as_is_set(tmp_path: Path, size: int) -> None:
    whole, some = Asked("whole"), Asked("some")
    limit = f"maxRequestBytes: {size}"
    body = b"x" * size
    async with (
        over_grpc(whole) as first,
        over_grpc(some) as second,
        running(
            tmp_path,
            [
                first,
                second,
                proxy("a", f"{{extensionRef: {{name: whole}}, responseTimeout: 2s, withRequestBody: {{{limit}}}}}"),
                proxy(
                    "b",
                    "{extensionRef: {name: some}, responseTimeout: 2s, "
                    f"withRequestBody: {{{limit}, allowPartialMessage: true, packAsBytes: true}}}}",
                ),
            ],
            contour=INSECURE,
        ) as gateway,
    ):
        statuses = [
            (await gateway.post(host, sent)).status_code
            for host in ("a.example", "b.example")
            for sent in (body, body * 2)
        ]
    assert statuses == [200, 413, 200, 200]
    assert [len(check.body) for check in (*whole.checks, *some.checks)] == [size, size, size]


@pytest.mark.requirement("AZ-17")
async def test_a_check_may_take_as_long_as_is_set(tmp_path: Path) -> None:
    asked, answering = Asked("slow"), asyncio.Event()

    async def slowly(request: HttpRequest) -> HttpResponse:
        await answering.wait()
        return asked.respond(request)

    timeouts = {"patient": "5s", "endless": "infinity", "default": "", "hasty": "100ms"}
    async with serve_http(HERE, slowly) as bound:
        assert isinstance(bound, TcpAddress)
        documents = [service("slow", bound.port), extension("slow", protocol="http/1.1")]
        documents += [
            proxy(host, f"{{extensionRef: {{name: slow}}, serviceType: http, responseTimeout: '{timeout}'}}")
            for host, timeout in timeouts.items()
        ]
        async with running(tmp_path, documents, contour=INSECURE) as gateway, asyncio.TaskGroup() as waiting:
            long = [waiting.create_task(gateway.get(f"{host}.example")) for host in ("patient", "endless")]
            short = [(await gateway.get(f"{host}.example")).status_code for host in ("default", "hasty")]
            answering.set()
            assert (short, [(await each).status_code for each in long]) == ([403, 403], [200, 200])


@pytest.mark.parametrize("kind", ["grpc", "http"])
async def test_a_client_that_leaves_during_its_check_affects_no_other(tmp_path: Path, kind: str) -> None:
    asked, waiting = Asked("one"), asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        waiting.set()
        await reader.read()  # says nothing until Envoy is gone
        writer.close()

    silent = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    block = f"{{extensionRef: {{name: silent}}, responseTimeout: infinity, serviceType: {kind}}}"
    async with (
        silent,
        over_grpc(asked) as documents,
        running(
            tmp_path,
            [
                documents,
                service("silent", port),
                extension("silent", protocol="h2c" if kind == "grpc" else "http/1.1"),
                proxy("a", block),
                proxy("b", "{extensionRef: {name: one}, responseTimeout: 2s}"),
            ],
            contour=INSECURE,
        ) as gateway,
    ):
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n")
        async with asyncio.timeout(5):
            await waiting.wait()
        writer.transport.abort()

        async def gone() -> bool:
            reply = await gateway.envoy.admin(
                "/stats?filter=^http.ingress_http.downstream_cx_destroy_remote_active_rq$"
            )
            return reply.body.strip().endswith(": 1")

        await eventually(gone)
        assert await gateway.checked_by("b.example") == "one"


@dataclass(slots=True)
class RemovesHint(Asked):
    """Allows what is checked as public, and removes the header by which a client chose that."""

    def decide(self, request: Request, _now: datetime) -> Decision:
        if dict(request.context).get("realm") != "public":
            return Deny(http_status=401, rule=self.name)
        return Allow(edits=HeaderEdits(remove=("x-hint",)))


TWO_REALMS: Final = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: a}
spec:
  virtualhost:
    fqdn: a.example
    authorization: {extensionRef: {name: one}, responseTimeout: 2s}
  routes:
  - services: [{name: echo, port: 80}]
    requestHeadersPolicy: {set: [{name: x-realm, value: private}]}
    authPolicy: {context: {realm: private}}
  - conditions: [{header: {name: x-hint, present: true}}]
    services: [{name: echo, port: 80}]
    requestHeadersPolicy: {set: [{name: x-realm, value: public}]}
    authPolicy: {context: {realm: public}}
"""


@pytest.mark.requirement("E29")
async def test_a_header_that_the_service_removes_leads_to_no_route_with_another_context(tmp_path: Path) -> None:
    async with (
        over_grpc(RemovesHint("one")) as documents,
        running(tmp_path, [documents, TWO_REALMS], contour=INSECURE) as gateway,
    ):
        assert (await gateway.get("a.example")).status_code == 401
        reached = await gateway.reached("a.example", **{"x-hint": "1"})
        assert (reached["x-realm"], "x-hint" in reached) == ("public", False)


SPELLINGS: Final = {
    "a.example": 401,
    "A.Example": 401,
    "a.example:443": 401,
    "a.example:": 401,
    "a.example:x": 401,
    "a.example.": 404,
    "a%2eexample": 404,
    "x@a.example": 400,
    "b.example,a.example": 400,
    "a.example,b.example": 400,
    "a..example": 400,
    "b.example": 200,
    "B.Example:80": 200,
    "b-1.example": 200,
    "b.c.example": 404,
    "B.c_d.Example:80": 404,
    "c_d.example": 404,
    "bxexample": 404,
}


async def test_no_spelling_of_a_host_leads_to_a_wildcard_instead_of_its_owner(tmp_path: Path) -> None:
    checked = proxy("a", "{extensionRef: {name: one}, responseTimeout: 2s}")
    wild = proxy("wild").replace("wild.example", "'*.example'")
    async with (
        over_grpc(Asked("one")) as documents,
        running(tmp_path, [documents, checked, wild], contour=INSECURE) as gateway,
    ):
        found = {host: (await gateway.get(host, "/no")).status_code for host in SPELLINGS}
    assert found == SPELLINGS


@pytest.mark.requirement("E18")
async def test_a_client_cannot_mark_a_request_as_one_that_went_through_unchecked(tmp_path: Path) -> None:
    mark = {"x-envoy-auth-failure-mode-allowed": "true"}
    block = "{extensionRef: {name: one}, responseTimeout: 2s, failOpen: true}"
    async with (
        over_grpc(Asked("one")) as documents,
        running(tmp_path, [documents, proxy("a", block)], contour=INSECURE) as gateway,
    ):
        reached = [await gateway.reached("a.example", path, **mark) for path in ("/yes", "/open")]
    assert [headers.keys() & mark.keys() for headers in reached] == [set(), set()]
