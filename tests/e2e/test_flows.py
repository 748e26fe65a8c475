"""The flows of external authorization, from the client to the origin, with programs as a user runs them."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import datetime
from http.cookies import SimpleCookie
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pytest
import pytest_asyncio
from tests.support.authservers.asked_services import Recording, Slow, asked
from tests.support.authservers.server_process import Server, basic, entry
from tests.support.certificates import client
from tests.support.clients.curl import Curl
from tests.support.eventually import eventually
from tests.support.gateways.contour_gateway import Gateway, gateway, kill, service

from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import TcpAddress

pytestmark = pytest.mark.asyncio(loop_scope="module")

HERE: Final = TcpAddress(host="127.0.0.1", port=0)
SPOOFED: Final = [
    part
    for name in ("Auth-Username: root", "auth-realm: other", "AUTH-HANDLER: spoof", "Auth-Context-Role: admin")
    for part in ("-H", name)
]


def extension(name: str, protocol: str = "h2c") -> str:
    return f"""
apiVersion: projectcontour.io/v1alpha1
kind: ExtensionService
metadata: {{name: {name}}}
spec: {{protocol: {protocol}, services: [{{name: {name}, port: 80}}]}}
"""


def host(name: str, extension_service: str, more: str = "", *, tls: str = "") -> str:
    """Return a host below many.example that a service protects."""
    return f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: {name}}}
spec:
  virtualhost:
    fqdn: {name}.many.example
    tls: {{secretName: tls{tls}}}
    authorization: {{extensionRef: {{name: {extension_service}}}, responseTimeout: 4s{more}}}
  routes: [{{services: [{{name: echo, port: 80}}]}}]
"""


@dataclass
class SignIn:
    """Sends who has no session to a provider, and knows whom the provider signed in."""

    name: ClassVar = "sign-in"
    sessions: dict[str, str] = field(default_factory=dict)

    def decide(self, request: Request, _now: datetime) -> Decision:
        cookies = SimpleCookie("; ".join(request.values("cookie")))
        user = self.sessions.get(cookies["session"].value) if "session" in cookies else None
        if user is not None:
            return Allow(edits=HeaderEdits(set=(("Auth-Username", user),), remove=request.auth_names))
        origin = quote(f"https://{request.host}{request.path}?{request.query}", safe="")
        headers = (
            ("Location", f"http://signin.many.example/login?return={origin}"),
            ("Set-Cookie", "attempt=1; Path=/; HttpOnly; SameSite=Lax"),
            ("Set-Cookie", "seen=yes; Path=/"),
        )
        return Deny(http_status=302, headers=headers, rule="sign in first")

    def provide(self, request: HttpRequest) -> HttpResponse:
        """Sign everybody in, as the provider, and send them back."""
        target = parse_qs(urlsplit(request.target).query)["return"][0]
        session = secrets.token_urlsafe()
        self.sessions[session] = "ann"
        cookie = f"session={session}; Domain=many.example; Path=/; HttpOnly"
        return HttpResponse(status=302, headers=(("location", target), ("set-cookie", cookie)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that plays together."""

    gateway: Gateway
    curl: Curl
    recording: Recording
    slow: Slow
    sign_in: SignIn
    provider: int


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Scene]:
    folder = tmp_path_factory.mktemp("flows")
    (folder / "users").write_text(entry("ann", "secret"), encoding="utf-8")
    recording, slow, sign_in = Recording(), Slow(), SignIn()
    test = Server()
    async with (
        gateway(backend=("htpasswd", "--file", str(folder / "users"), "--engine", "grpcio")) as it,
        test.running("testserver", "--mode", "path", "--engine", "grpcio", http=True, admin=False),
        asked(recording) as recorded,
        asked(slow, perform=slow.perform) as late,
        asked(sign_in) as signing,
        serve_http(HERE, sign_in.provide) as provider,
    ):
        assert isinstance(provider, TcpAddress)
        ports = {"test": test.grpc, "web": test.http, "recording": recorded, "slow": late, "sign-in": signing}
        documents = [part for name, port in ports.items() for part in (service(name, port), _extension(name))]
        it.write("flows.yaml", "---".join([*documents, *HOSTS]))
        http, https = it.ports
        scene = Scene(
            gateway=it,
            curl=Curl(folder=folder, http=http, https=https),
            recording=recording,
            slow=slow,
            sign_in=sign_in,
            provider=provider.port,
        )
        await it.answers("/", 401, "password.many.example")
        await it.answers("/", 401, "test.many.example")
        yield scene


def _extension(name: str) -> str:
    return extension(name, "http/1.1" if name == "web" else "h2c")


OVER_HTTP: Final = (
    ", serviceType: http, httpSettings: {allowedAuthorizationHeaders: [{exact: x-tenant}], "
    "allowedUpstreamHeaders: [{prefix: auth-}]}"
)
HOSTS: Final = (
    host("password", "auth", ", authPolicy: {context: {realm: default, tenant: blue}}"),
    host("test", "test", ", authPolicy: {context: {tenant: blue}}"),
    host("http", "web", OVER_HTTP),
    host("shop", "sign-in"),
    host("must", "recording", tls=", clientValidation: {caSecret: ca}"),
    host("may", "recording", tls=", clientValidation: {caSecret: ca, optionalClientCertificate: true}"),
    host("body", "recording", ", withRequestBody: {maxRequestBytes: 10}"),
    host("part", "recording", ", withRequestBody: {maxRequestBytes: 10, allowPartialMessage: true}"),
    host("bytes", "recording", ", withRequestBody: {maxRequestBytes: 10, packAsBytes: true}"),
    host("long", "slow"),
    host("short", "slow").replace("responseTimeout: 4s", "responseTimeout: 150ms"),
)


# --- Verifying an authorized request


@pytest.mark.real
async def test_the_origin_sees_who_has_the_password_and_no_header_of_the_client_s(scene: Scene) -> None:
    url = "https://password.many.example/x"
    allowed = await scene.curl.get(url, *SPOOFED, "-H", f"authorization: {basic('ann', 'secret')}")
    assert (allowed.status, allowed.seen("auth")) == (
        200,
        [
            ("auth-context-realm", "default"),
            ("auth-context-tenant", "blue"),
            ("auth-handler", "htpasswd"),
            ("auth-realm", "default"),
            ("auth-username", "ann"),
        ],
    )
    refused = await scene.curl.get(url, *SPOOFED, "-u", "ann:wrong")
    assert (refused.status, refused.values("www-authenticate")) == (401, ['Basic realm="default", charset="UTF-8"'])


@pytest.mark.real
async def test_the_origin_sees_the_test_server_s_headers_and_none_of_the_client_s(scene: Scene) -> None:
    allowed = await scene.curl.get("https://test.many.example/allow", *SPOOFED)
    assert (allowed.status, allowed.seen("auth")) == (
        200,
        [("auth-context-tenant", "blue"), ("auth-handler", "testserver")],
    )
    denied = await scene.curl.get("https://test.many.example/x", *SPOOFED)
    assert (denied.status, denied.values("auth-handler"), denied.values("auth-context-tenant")) == (
        401,
        ["testserver"],
        ["blue"],
    )


@pytest.mark.real
async def test_a_service_over_http_is_called_and_its_headers_reach_the_origin(scene: Scene) -> None:
    allowed = await scene.curl.get("https://http.many.example/allow", *SPOOFED)
    assert (allowed.status, allowed.seen("auth-handler")) == (200, [("auth-handler", "testserver")])
    denied = await scene.curl.get("https://http.many.example/x")
    assert (denied.status, denied.body) == (401, "The path does not contain 'allow'.\n")


# --- Signing in


@pytest.mark.real
async def test_a_client_that_must_sign_in_is_sent_to_the_provider_as_the_service_says(scene: Scene) -> None:
    reply = await scene.curl.get("https://shop.many.example/cart?item=1")
    origin = quote("https://shop.many.example/cart?item=1", safe="")
    assert (reply.status, reply.body) == (302, "")
    assert reply.values("location") == [f"http://signin.many.example/login?return={origin}"]
    assert reply.values("set-cookie") == ["attempt=1; Path=/; HttpOnly; SameSite=Lax", "seen=yes; Path=/"]


@pytest.mark.real
async def test_a_client_that_signs_in_comes_back_and_is_served(scene: Scene, tmp_path: Path) -> None:
    jar = str(tmp_path / "cookies")
    options = ["-L", "-b", jar, "-c", jar, *SPOOFED]
    options += ["--connect-to", f"signin.many.example:80:127.0.0.1:{scene.provider}"]
    hops = await scene.curl.hops("https://shop.many.example/cart?item=1", *options)
    assert [reply.status for reply in hops] == [302, 302, 200]
    assert (hops[-1].json["path"], hops[-1].seen("auth")) == ("/cart?item=1", [("auth-username", "ann")])
    # The session lasts; one that nobody opened does not count.
    again = await scene.curl.hops("https://shop.many.example/pay", *options)
    assert [(reply.status, reply.json["path"]) for reply in again] == [(200, "/pay")]
    forged = await scene.curl.get("https://shop.many.example/pay", "-H", "cookie: session=forged")
    assert forged.status == 302


# --- Client certificates


async def certificates_seen(scene: Scene, name: str, *options: str) -> list[tuple[str, str]]:
    """Ask, and return principal and certificate that the service was told."""
    scene.recording.requests.clear()
    hops = await scene.curl.hops(f"https://{name}.many.example/", *options)
    assert [reply.status for reply in hops] == [200] * len(hops)
    return [(request.source.principal, unquote(request.source.certificate)) for request in scene.recording.requests]


@pytest.mark.real
@pytest.mark.requirement("AZ-19")
async def test_the_client_s_certificate_reaches_the_service(scene: Scene, tmp_path: Path) -> None:
    pair = client("friend.example")
    path = tmp_path / "friend.pem"
    path.write_bytes(pair.certificate + pair.key.reveal())
    shown = ("--cert", str(path))
    told = [("friend.example", pair.certificate.decode())]
    assert await certificates_seen(scene, "must", *shown) == told
    assert await certificates_seen(scene, "may", *shown) == told
    assert await certificates_seen(scene, "may") == [("", "")]
    assert await certificates_seen(scene, "must") == []
    # Nobody asked for it here, so it was not shown.
    assert await certificates_seen(scene, "bytes", *shown) == [("", "")]


# --- The request's body


BODIES: Final = {
    "all of it": ("body", "0123456789", 200, [b"0123456789"]),
    "too much": ("body", "0123456789a", 413, []),
    "the beginning": ("part", "0123456789a", 200, [b"0123456789"]),
    "nothing, if nobody asked for it": ("may", "0123456789", 200, [b""]),
}


@pytest.mark.real
@pytest.mark.parametrize(("name", "sent", "status", "seen"), BODIES.values(), ids=BODIES.keys())
async def test_the_service_sees_of_the_body_what_it_may(
    scene: Scene, name: str, sent: str, status: int, seen: list[bytes]
) -> None:
    scene.recording.requests.clear()
    reply = await scene.curl.get(f"https://{name}.many.example/", "--http1.1", "--data", sent)
    assert (reply.status, [request.body for request in scene.recording.requests]) == (status, seen)
    assert status == 413 or reply.json["body"] == sent


@pytest.mark.real
@pytest.mark.parametrize("name", ["body", "part"])
async def test_a_service_never_takes_a_part_of_the_body_for_the_whole(scene: Scene, name: str) -> None:
    """Envoy refuses what is too large; over HTTP/2 it may ask all the same, and says then that there was more."""
    scene.recording.requests.clear()
    reply = await scene.curl.get(f"https://{name}.many.example/", "--http2", "--data", "0123456789a")
    told = [request.values("x-envoy-auth-partial-body") for request in scene.recording.requests]
    assert (reply.status, told) in [(413, []), (200, [("true",)])]


@pytest.mark.real
async def test_a_body_that_is_no_text_reaches_the_service_as_it_is(scene: Scene, tmp_path: Path) -> None:
    scene.recording.requests.clear()
    path = tmp_path / "body"
    path.write_bytes(b"\x00\xff\xfe")
    assert (await scene.curl.get("https://bytes.many.example/", "--data-binary", f"@{path}")).status == 200
    assert [request.body for request in scene.recording.requests] == [b"\x00\xff\xfe"]


# --- Services that are slow or gone


@pytest.mark.real
async def test_a_request_waits_for_its_service_as_long_as_its_host_says(scene: Scene) -> None:
    scene.slow.now.clear()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(scene.curl.get("https://long.many.example/"))
        # Envoy gives up, or the service, which knows how long Envoy waits, says in time that it cannot tell.
        assert (await scene.curl.get("https://short.many.example/")).status in {403, 503}
        assert not waiting.done()
        scene.slow.now.set()
    assert waiting.result().status == 200
    assert (await scene.curl.get("https://short.many.example/")).status == 200


@pytest.mark.real
@pytest.mark.requirement("AZ-16")
async def test_without_its_service_a_host_is_open_only_if_it_says_so(scene: Scene) -> None:
    server = Server()
    async with server.running("testserver", "--mode", "path", "--engine", "grpcio", admin=False):
        open_host, shut = host("open", "mortal", ", failOpen: true"), host("shut", "mortal")
        mortal = [service("mortal", server.grpc), extension("mortal"), open_host, shut]
        scene.gateway.write("mortal.yaml", "---".join(mortal))
        urls = MappingProxyType({name: f"https://{name}.many.example/x" for name in ("open", "shut")})

        async def statuses() -> dict[str, int]:
            return {name: hops[-1].status for name, url in urls.items() if (hops := await scene.curl.hops(url))}

        async def both_ask() -> bool:
            return await statuses() == {"open": 401, "shut": 401}

        await eventually(both_ask)
        await kill(server.child)
        assert await statuses() == {"open": 200, "shut": 403}
