"""External services, asked over real connections."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf import json_format, text_format
from tests.support.certificates import authority, server

from authplane.authserver.backends.runtime.external_services import (
    Endpoint,
    ExternalServices,
    ServicePort,
    external_services,
)
from authplane.authserver.backends.runtime.upstream_trust import trusted_certificates
from authplane.core.header_edits import HeaderEdits
from authplane.core.names import ObjectName
from authplane.devkit.identities.throwaway_certificates import KeyPair, create_authority
from authplane.policy.check.request import Peer, Request
from authplane.policy.external_authorization.service_replies import client_headers
from authplane.policy.external_authorization.wire import render_question
from authplane.policy.rules.backend_tls import BackendTls, SystemTrust
from authplane.policy.rules.external_service import ExternalService, OverGrpc, OverHttp
from authplane.policy.verdicts.effects import Ask, Declined, Granted, NoAnswer, Outcome
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import TcpAddress

NAME: Final = ObjectName("default", "authz")
WHERE: Final = ServicePort(NAME, 9000)
BODY: Final = b'{"jsonrpc":"2.0"}'
REQUEST: Final = Request(
    method="POST",
    scheme="https",
    host="mcp.example",
    path="/mcp",
    query="a=1",
    headers=(
        ("authorization", "Bearer t"),
        ("content-length", str(len(BODY))),
        ("content-type", "application/json"),
        ("cookie", "a=1"),
        ("x-envoy-auth-partial-body", "false"),
        ("x-forwarded-client-cert", "URI=spiffe://evil"),
        ("x-team", "red"),
        ("x-team", "blue"),
    ),
    context={"authplane.target": "Backend/default/shop"},
    id="42",
    source=Peer(principal="spiffe://cluster.local/agent", address="10.0.0.1", port=5, certificate="PEM"),
    destination=Peer(address="10.0.0.2", port=8090),
    body=BODY,
    time=datetime(2026, 1, 1, tzinfo=UTC),
)


def ask(protocol: OverGrpc | OverHttp, *, most_body: int = 0, seconds: float = 5, **more: Any) -> Ask:
    service = ExternalService(service=NAME, port=9000, protocol=protocol, most_body=most_body)
    return Ask(
        service=service, request=more.pop("request", REQUEST), deadline=datetime.now(UTC).timestamp() + seconds, **more
    )


@dataclass
class GrpcService:
    """Answers every check with the same bytes, and remembers what it was asked."""

    reply: bytes = b""
    asked: list[pb.CheckRequest] = field(default_factory=list)
    peers: set[str] = field(default_factory=set)

    async def check(self, body: bytes, context: Any) -> bytes:
        self.asked.append(pb.CheckRequest.FromString(body))
        self.peers.add(context.peer())
        return self.reply


@asynccontextmanager
async def grpc_service(
    check: Callable[[bytes, Any], Any], credentials: grpc.ServerCredentials | None = None
) -> AsyncGenerator[Endpoint]:
    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("envoy.service.auth.v3.Authorization", {"Check": handler})]
    )
    where = "127.0.0.1:0"
    port = server.add_secure_port(where, credentials) if credentials else server.add_insecure_port(where)
    await server.start()
    try:
        yield Endpoint("127.0.0.1", port)
    finally:
        await server.stop(None)


@asynccontextmanager
async def http_service(respond: Callable[[HttpRequest], HttpResponse]) -> AsyncGenerator[Endpoint]:
    async with serve_http(TcpAddress(host="127.0.0.1", port=0), respond) as bound:
        assert isinstance(bound, TcpAddress)
        yield Endpoint("127.0.0.1", bound.port)


@asynccontextmanager
async def asking(*endpoints: Endpoint) -> AsyncGenerator[ExternalServices]:
    async with external_services() as services:
        services.publish({WHERE: endpoints})
        yield services


def response(text: str) -> bytes:
    return text_format.Parse(text, pb.CheckResponse()).SerializeToString()


async def over_grpc(reply: bytes, asked: Ask | None = None) -> tuple[Outcome, GrpcService]:
    service = GrpcService(reply)
    async with grpc_service(service.check) as endpoint, asking(endpoint) as services:
        return await services.ask(asked or ask(OverGrpc())), service


OK: Final = response("status {}")


@pytest.mark.requirement("R62")
@pytest.mark.requirement("R6A")
async def test_over_grpc_a_service_gets_the_whole_request_unless_headers_are_listed() -> None:
    metadata = {"envoy.filters.http.jwt_authn": {"https://issuer.example": {"sub": "alice", "n": 1.0, "l": ["a"]}}}
    outcome, service = await over_grpc(OK, ask(OverGrpc(), metadata=metadata))
    assert outcome == Granted()
    assert json_format.MessageToDict(service.asked[0]) == {
        "attributes": {
            "source": {
                "principal": "spiffe://cluster.local/agent",
                "address": {"socketAddress": {"address": "10.0.0.1", "portValue": 5}},
            },
            "destination": {"address": {"socketAddress": {"address": "10.0.0.2", "portValue": 8090}}},
            "request": {
                "time": "2026-01-01T00:00:00Z",
                "http": {
                    "id": "42",
                    "method": "POST",
                    "headers": {
                        "authorization": "Bearer t",
                        "content-length": str(len(BODY)),
                        "content-type": "application/json",
                        "cookie": "a=1",
                        "x-team": "red,blue",
                    },
                    "path": "/mcp?a=1",
                    "host": "mcp.example",
                    "scheme": "https",
                    "size": "-1",
                },
            },
            "contextExtensions": {"authplane.hops": "1"},
            "metadataContext": {"filterMetadata": metadata},
        }
    }
    _, service = await over_grpc(OK, ask(OverGrpc(request_headers=frozenset({"x-team", "absent"})), most_body=100))
    http = service.asked[0].attributes.request.http
    assert dict(http.headers) == {"x-team": "red,blue", "x-envoy-auth-partial-body": "false"}
    assert (http.body, http.raw_body, http.size) == (BODY.decode(), b"", len(BODY))
    odd = replace(REQUEST, body=b"\xff\x00")
    _, service = await over_grpc(OK, ask(OverGrpc(), most_body=100, request=odd))
    assert service.asked[0].attributes.request.http.raw_body == b"\xff\x00"


@pytest.mark.parametrize(
    ("address", "want"),
    [
        ("/run/a.sock", {"pipe": {"path": "/run/a.sock"}}),
        ("@a", {"pipe": {"path": "@a"}}),
        ("::1", {"socketAddress": {"address": "::1", "portValue": 7}}),
        ("", {}),
    ],
)
def test_over_grpc_a_peer_has_an_address_of_its_kind(address: str, want: dict[str, Any]) -> None:
    request = replace(REQUEST, source=Peer(address=address, port=7), destination=Peer(address=address, port=7))
    asked = pb.CheckRequest.FromString(render_question(ask(OverGrpc(), request=request), OverGrpc()))
    for peer in (asked.attributes.source, asked.attributes.destination):
        assert json_format.MessageToDict(peer.address) == want


CONTRADICTION: Final = NoAnswer("the response has a denied_response, but its status is OK or not set")
ANSWERS: Final[dict[str, tuple[bytes, Outcome]]] = {
    "OK": (OK, Granted()),
    "OK with edits": (
        response(
            'status {} ok_response { headers { header { key: "X-User" value: "alice" } } headers_to_remove: "Cookie" }'
        ),
        Granted(HeaderEdits(set=(("x-user", "alice"),), remove=("cookie",))),
    ),
    "OK with a header that is appended": (
        response('ok_response { headers { header { key: "x-team" value: "green" } append { value: true } } }'),
        Granted(HeaderEdits(set=(("x-team", "green"),))),
    ),
    "OK with two headers that are appended": (
        response(
            'ok_response { headers { header { key: "x-team" value: "green" } append { value: true } }'
            ' headers { header { key: "X-Team" value: "black" } append { value: true } } }'
        ),
        Granted(HeaderEdits(set=(("x-team", "green,black"),))),
    ),
    "OK with a header that replaces an earlier one": (
        response(
            'ok_response { headers { header { key: "x-team" value: "green" } }'
            ' headers { header { key: "x-team" value: "black" } append { value: false } } }'
        ),
        Granted(HeaderEdits(set=(("x-team", "black"),))),
    ),
    "OK with defaults": (
        response(
            'ok_response { headers { header { key: "x-team" value: "green" } append_action: ADD_IF_ABSENT }'
            ' headers { header { key: "x-team" value: "black" } append_action: ADD_IF_ABSENT } }'
        ),
        Granted(HeaderEdits(set=(("x-team", "green"),))),
    ),
    "OK with orders for proxies": (
        response(
            'status {} ok_response { headers { header { key: "X-Envoy-Retry-On" value: "5xx" } }'
            ' headers { header { key: "x-authplane-hops" value: "0" } } }'
        ),
        Granted(),
    ),
    "allowed without a status": (response("ok_response {}"), Granted()),
    "denied": (response("status { code: 7 }"), Declined()),
    "denied with a status and headers": (
        response(
            'status { code: 16 } denied_response { status { code: Unauthorized } body: "no"'
            ' headers { header { key: "WWW-Authenticate" value: "Bearer" } } }'
        ),
        Declined(http_status=401, headers=(("www-authenticate", "Bearer"),), body="no"),
    ),
    "denied with more than a client may be told": (
        response(
            'status { code: 7 } denied_response { headers { header { key: "Set-Cookie" value: "a=1" } }'
            ' headers { header { key: "set-cookie" raw_value: "b=2" } }'
            ' headers { header { key: ":status" value: "200" } }'
            ' headers { header { key: "Content-Length" value: "0" } } headers { header { key: "TE" value: "x" } }'
            ' headers { header { key: "x-a" value: "a\\r\\nb: c" } } headers { header { key: "Server" value: "x" } }'
            ' headers { header { key: "x-envoy-a" value: "x" } } }'
        ),
        Declined(headers=(("set-cookie", "a=1"), ("set-cookie", "b=2"))),
    ),
    "allowed, with headers for the client": (
        response(
            'status {} ok_response { response_headers_to_add { header { key: "Set-Cookie" value: "a=1" } }'
            ' response_headers_to_add { header { key: "content-encoding" value: "gzip" } }'
            ' response_headers_to_add { header { key: "Upgrade" value: "x" } } }'
        ),
        Granted(response_headers=(("set-cookie", "a=1"),)),
    ),
    "allowed, with headers in the place of the origin's": (
        response(
            'status {} ok_response { response_headers_to_add { header { key: "x-a" value: "1" }'
            " append_action: OVERWRITE_IF_EXISTS_OR_ADD } }"
        ),
        NoAnswer("the service replaces response headers, which is not supported"),
    ),
    "denied, with words that allow": (response("status { code: 7 } ok_response {}"), Declined()),
    "a denial with status OK": (response("status {} denied_response {}"), CONTRADICTION),
    "a denial without a status": (response("denied_response { status { code: Unauthorized } }"), CONTRADICTION),
    "a denial without anything": (response("denied_response {}"), CONTRADICTION),
    "an empty message, which would allow in Envoy": (b"", NoAnswer("the response is empty")),
    "no message": (b"\xff", NoAnswer("the response is not a CheckResponse")),
    "an error": (
        response("status { code: 14 } error_response { status { code: ServiceUnavailable } }"),
        NoAnswer("the service returned an error instead of a decision"),
    ),
    "OK with metadata for other filters, which goes no further": (
        response(
            'status {} dynamic_metadata { fields { key: "envoy.filters.http.rbac" value { string_value: "x" } } }'
            ' ok_response { dynamic_metadata { fields { key: "authplane" value { bool_value: true } } } }'
        ),
        Granted(),
    ),
    "an edit that cannot be made": (
        response('status {} ok_response { query_parameters_to_remove: "a" }'),
        NoAnswer("the service changes the query, which is not supported"),
    ),
}


@pytest.mark.requirement("E02", "E31", "R61")
@pytest.mark.parametrize(("reply", "want"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_over_grpc_only_a_clear_word_grants(reply: bytes, want: Outcome) -> None:
    outcome, _ = await over_grpc(reply)
    assert outcome == want


async def test_connections_are_kept_over_grpc() -> None:
    service = GrpcService(OK)
    async with grpc_service(service.check) as endpoint, asking(endpoint) as services:
        for _ in range(5):
            assert await services.ask(ask(OverGrpc())) == Granted()
            services.publish({WHERE: (endpoint,)})
        assert len(service.peers) == 1


# --- HTTP


async def over_http(answer: HttpResponse, asked: Ask) -> tuple[Outcome, HttpRequest]:
    seen: list[HttpRequest] = []

    def respond(request: HttpRequest) -> HttpResponse:
        seen.append(request)
        return answer

    async with http_service(respond) as endpoint, asking(endpoint) as services:
        return await services.ask(asked), seen[0]


@pytest.mark.requirement("R64")
async def test_over_http_a_service_gets_five_values_and_the_listed_headers() -> None:
    outcome, seen = await over_http(HttpResponse(status=200), ask(OverHttp()))
    assert isinstance(outcome, Granted)
    assert (seen.method, seen.target, seen.body) == ("POST", "/mcp?a=1", b"")
    assert sorted(seen.headers) == [
        ("authorization", "Bearer t"),
        ("content-length", "0"),
        ("host", "mcp.example"),
        ("x-authplane-hops", "1"),
    ]
    listed = OverHttp(
        path="/verify", request_headers=frozenset({"x-team", "content-length", "connection", "x-forwarded-client-cert"})
    )
    _, seen = await over_http(HttpResponse(status=200), ask(listed, most_body=100))
    assert (seen.target, seen.body) == ("/verify/mcp?a=1", BODY)
    assert sorted(seen.headers) == [
        ("authorization", "Bearer t"),
        ("content-length", str(len(BODY))),
        ("host", "mcp.example"),
        ("x-authplane-hops", "1"),
        ("x-team", "blue"),
        ("x-team", "red"),
    ]


@pytest.mark.requirement("R65")
async def test_over_http_all_headers_of_an_allowance_are_taken_over_unless_some_are_listed() -> None:
    said = HttpResponse(
        status=200,
        headers=(
            ("X-User", "alice"),
            ("X-Team", "a"),
            ("X-Team", "b"),
            ("Host", "evil"),
            ("Date", "now"),
            ("X-Envoy-Retry-On", "5xx"),
        ),
    )
    outcome, _ = await over_http(said, ask(OverHttp()))
    assert outcome == Granted(HeaderEdits(set=(("date", "now"), ("x-team", "a, b"), ("x-user", "alice"))))
    outcome, _ = await over_http(said, ask(OverHttp(response_headers=frozenset({"x-user", "host"}))))
    assert outcome == Granted(HeaderEdits(set=(("x-user", "alice"),)))


@pytest.mark.requirement("R61")
@pytest.mark.parametrize("status", [201, 204, 301, 400, 401, 403, 404, 500, 503])
async def test_over_http_every_status_but_200_denies(status: int) -> None:
    outcome, _ = await over_http(HttpResponse(status=status), ask(OverHttp()))
    assert isinstance(outcome, Declined)
    assert outcome.http_status == status


DENIALS: Final[dict[str, tuple[HttpResponse, Declined]]] = {
    "all that a client may be told": (
        HttpResponse(
            status=401,
            headers=(
                ("WWW-Authenticate", "Basic"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Content-Type", "a/b"),
                ("Server", "x"), ("X-Envoy-A", "x"), ("Proxy-Authenticate", "Basic"),
            ),
            body=b"\xc3\xa9",
        ),
        Declined(
            http_status=401,
            headers=(
                ("www-authenticate", "Basic"), ("set-cookie", "a=1"), ("set-cookie", "b=2"), ("content-type", "a/b"),
            ),
            body="\xe9",
        ),
    ),
    "a body that is no text": (
        HttpResponse(status=403, headers=(("Content-Type", "a/b"), ("X-A", "a")), body=b"\xff"),
        Declined(headers=(("x-a", "a"),)),
    ),
    "a body that is packed": (
        HttpResponse(status=403, headers=(("Content-Encoding", "gzip"), ("X-A", "a")), body=b"a"),
        Declined(headers=(("x-a", "a"),)),
    ),
    "a body that is too long": (
        HttpResponse(status=403, headers=(("Content-Type", "a/b"), ("X-A", "a")), body=b"a" * 70_000),
        Declined(headers=(("x-a", "a"),)),
    ),
    "more headers than a proxy can carry": (
        HttpResponse(status=403, headers=(("X-A", "a"),) * 65, body=b"no"),
        Declined(body="no"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("said", "want"), DENIALS.values(), ids=DENIALS.keys())
async def test_over_http_a_denial_says_to_the_client_what_a_proxy_may_pass_on(
    said: HttpResponse, want: Declined
) -> None:
    outcome, _ = await over_http(said, ask(OverHttp()))
    assert outcome == want


def test_a_header_that_is_for_the_connection_alone_is_not_passed_on() -> None:
    said = [("Connection", "close, X-Hop"), ("X-Hop", "1"), ("X-A", " a ")]
    assert client_headers(said) == (("x-a", "a"),)


@pytest.mark.parametrize("path", ["/a/../b", "/a//b", "/%2e%2e/b", "/a;b", "*"])
async def test_a_path_that_could_lead_elsewhere_is_not_asked_about(path: str) -> None:
    async with asking(Endpoint("127.0.0.1", 1)) as services:
        outcome = await services.ask(ask(OverHttp(path="/verify"), request=replace(REQUEST, path=path)))
    assert outcome == NoAnswer("the request cannot be forwarded to the service")


async def test_endpoints_of_a_service_are_called_in_turn_and_failed_ones_are_skipped() -> None:
    seen: list[int] = []

    def respond(number: int) -> Callable[[HttpRequest], HttpResponse]:
        def answer(_: HttpRequest) -> HttpResponse:
            seen.append(number)
            return HttpResponse(status=200)

        return answer

    async with http_service(respond(0)) as first, http_service(respond(1)) as second:
        async with asking(first, Endpoint("127.0.0.1", 1), second) as services:
            for _ in range(4):
                assert isinstance(await services.ask(ask(OverHttp())), Granted)
        assert set(seen) == {0, 1}


# --- Over TLS


@asynccontextmanager
async def https_service(pair: KeyPair, folder: Path) -> AsyncGenerator[tuple[Endpoint, list[str | None]]]:
    """Allow everything over TLS, and note which name was asked for."""
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (folder / "tls.pem").write_bytes(pair.key.reveal() + pair.certificate)
    context.load_cert_chain(folder / "tls.pem")
    context.sni_callback = lambda _, name, __: names.append(name)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as listening:
        yield Endpoint("127.0.0.1", listening.sockets[0].getsockname()[1]), names


@asynccontextmanager
async def tls_service(
    protocol: OverGrpc | OverHttp, pair: KeyPair, folder: Path
) -> AsyncGenerator[tuple[Endpoint, list[str | None]]]:
    if isinstance(protocol, OverHttp):
        async with https_service(pair, folder) as served:
            yield served
        return
    credentials = grpc.ssl_server_credentials([(pair.key.reveal(), pair.certificate)])
    async with grpc_service(GrpcService(OK).check, credentials) as endpoint:
        yield endpoint, []


def asked_over(protocol: OverGrpc | OverHttp, tls: BackendTls | None) -> Ask:
    asked = ask(protocol)
    return replace(asked, service=replace(asked.service, tls=tls))


def soon() -> float:
    return datetime.now(UTC).timestamp() + 0.2


TRUSTED: Final = BackendTls(hostname="authz.example", ca=authority().certificate)
STRANGER: Final = create_authority("stranger", now=datetime.now(UTC), lifetime=timedelta(days=1))
WHOM: Final[dict[str, tuple[BackendTls | None, bool]]] = {
    "the right name and CA": (TRUSTED, True),
    "another name": (replace(TRUSTED, hostname="other.example"), False),
    "the name that is dialled": (replace(TRUSTED, hostname="localhost"), False),
    "another CA": (replace(TRUSTED, ca=STRANGER.certificate), False),
    "the machine's CAs": (replace(TRUSTED, ca=SystemTrust()), False),
    "no TLS": (None, False),
}


@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()], ids=["grpc", "http"])
@pytest.mark.parametrize(("tls", "granted"), WHOM.values(), ids=WHOM.keys())
async def test_only_a_service_with_a_valid_certificate_is_called(
    protocol: OverGrpc | OverHttp, tls: BackendTls | None, granted: bool, tmp_path: Path
) -> None:
    async with tls_service(protocol, server("authz.example"), tmp_path) as (endpoint, names):
        async with external_services() as services:
            services.publish({WHERE._replace(tls=tls): (endpoint,)})
            outcome = await services.ask(asked_over(protocol, tls))
            assert isinstance(outcome, Granted) == granted
            assert granted or isinstance(outcome, NoAnswer)
        if granted and isinstance(protocol, OverHttp):
            assert names == ["authz.example"]


@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()], ids=["grpc", "http"])
async def test_a_service_without_tls_is_not_asked_where_tls_is_demanded(protocol: OverGrpc | OverHttp) -> None:
    service = GrpcService(OK)
    made = (
        grpc_service(service.check)
        if isinstance(protocol, OverGrpc)
        else http_service(lambda _: HttpResponse(status=200))
    )
    async with made as endpoint, external_services() as services:
        services.publish({WHERE._replace(tls=TRUSTED): (endpoint,)})
        assert isinstance(await services.ask(asked_over(protocol, TRUSTED)), NoAnswer)
    assert service.asked == []


@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()], ids=["grpc", "http"])
async def test_the_trusted_certificate_of_a_service_changes_with_its_policy(
    protocol: OverGrpc | OverHttp, tmp_path: Path
) -> None:
    other = replace(TRUSTED, ca=STRANGER.certificate)
    served = tls_service(protocol, server("authz.example"), tmp_path)
    async with served as (endpoint, _), external_services() as services:
        got = []
        for tls in (other, TRUSTED, other):
            services.publish({WHERE._replace(tls=tls): (endpoint,)})
            got.append(isinstance(await services.ask(asked_over(protocol, tls)), Granted))
        assert got == [False, True, False]
        # Nobody asks in the old way any more.
        assert await services.ask(asked_over(protocol, TRUSTED)) == NoAnswer("the service has no endpoints")


def test_the_machine_trusts_the_configured_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(authority().certificate)
    assert authority().certificate not in trusted_certificates(SystemTrust())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert authority().certificate in trusted_certificates(SystemTrust())


@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()], ids=["grpc", "http"])
async def test_without_trusted_certificates_no_service_is_called(protocol: OverGrpc | OverHttp) -> None:
    # gRPC would take the CAs that it brings along.
    nobody = replace(TRUSTED, ca=b"")
    async with external_services() as services:
        services.publish({WHERE._replace(tls=nobody): (Endpoint("127.0.0.1", 1),)})
        outcome = await services.ask(asked_over(protocol, nobody))
    assert outcome == NoAnswer(
        "No trusted CA certificates were found on this machine. Set SSL_CERT_FILE to a PEM file with CA certificates."
    )


# --- Whatever goes wrong


@pytest.mark.requirement("S22")
@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()])
async def test_an_unreachable_service_gives_no_answer(protocol: OverGrpc | OverHttp) -> None:
    async with asking(Endpoint("127.0.0.1", 1)) as services:
        assert isinstance(await services.ask(ask(protocol)), NoAnswer)
        services.publish({WHERE: ()})
        assert await services.ask(ask(protocol)) == NoAnswer("the service has no endpoints")
        services.publish({})
        assert await services.ask(ask(protocol)) == NoAnswer("the service has no endpoints")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()])
async def test_who_does_not_answer_in_time_has_not_answered(protocol: OverGrpc | OverHttp) -> None:
    # The system takes the connection, and nobody reads it.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = Endpoint("127.0.0.1", listening.getsockname()[1])
        async with external_services() as services:
            services.publish({WHERE._replace(tls=TRUSTED): (endpoint,)})
            assert isinstance(await services.ask(replace(asked_over(protocol, TRUSTED), deadline=soon())), NoAnswer)
        async with asking(endpoint) as services:
            assert isinstance(await services.ask(ask(protocol, seconds=0.2)), NoAnswer)
            assert await services.ask(ask(protocol, seconds=-1)) == NoAnswer("the check has no time left")


@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()])
async def test_a_service_that_comes_back_is_called_again(protocol: OverGrpc | OverHttp) -> None:
    service = GrpcService(OK)

    async def answered(services: ExternalServices) -> bool:
        return isinstance(await services.ask(ask(protocol)), Granted)

    def respond(_: HttpRequest) -> HttpResponse:
        return HttpResponse(status=200)

    async with external_services() as services:
        for _ in range(2):
            made = grpc_service(service.check) if isinstance(protocol, OverGrpc) else http_service(respond)
            async with made as endpoint:
                services.publish({WHERE: (endpoint,)})
                assert await answered(services)
            assert not await answered(services)


@pytest.mark.requirement("E28")
@pytest.mark.parametrize("protocol", [OverGrpc(), OverHttp()])
@pytest.mark.parametrize(("told", "asked"), [("0", True), ("2", True), ("3", False), ("x", False), ("-1", False)])
async def test_a_question_is_passed_on_three_times_at_most(
    protocol: OverGrpc | OverHttp, told: str, asked: bool
) -> None:
    passed = {
        "context": replace(REQUEST, context={"authplane.hops": told}),
        "header": replace(REQUEST, headers=(("x-authplane-hops", told),)),
    }
    service = GrpcService(OK)

    def respond(request: HttpRequest) -> HttpResponse:
        assert request.header("x-authplane-hops") == str(int(told) + 1)
        return HttpResponse(status=200)

    made = grpc_service(service.check) if isinstance(protocol, OverGrpc) else http_service(respond)
    async with made as endpoint, asking(endpoint) as services:
        for request in passed.values():
            outcome = await services.ask(ask(protocol, request=request))
            assert isinstance(outcome, Granted) == asked
    assert [each.attributes.context_extensions["authplane.hops"] for each in service.asked] == (
        [str(int(told) + 1)] * 2 if asked and isinstance(protocol, OverGrpc) else []
    )
