"""The gRPC front, asked by a real gRPC client."""

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest
from envoy.service.auth.v2 import external_auth_pb2 as v2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from structlog.testing import capture_logs
from tests.support.authservers.check_requests import check
from tests.support.authservers.told_checks import Told

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.authserver.records.runtime.traces import CallerTrace
from authplane.core.secret import Secret
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request
from authplane.runtime.servers.listen import (
    Address,
    AddressTakenError,
    ServerTls,
    TcpAddress,
    TlsUnusableError,
    UnixAddress,
    read_server_tls,
)
from authplane.runtime.servers.service_names import SERVICE

HERE: Final = TcpAddress(host="127.0.0.1", port=0)
PATH: Final = TestServer(mode=Mode.PATH)


class Broken:
    """Fails with a message that must not be logged."""

    name: Final = "broken"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        raise KeyError("hunter2")


async def _ask(channel: grpc.aio.Channel, body: bytes, method: str = f"/{SERVICE}/Check") -> bytes:
    call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
    reply: bytes = await call(body, timeout=5)
    return reply


async def _code(address: Address, body: bytes) -> int:
    async with grpc.aio.insecure_channel(str(address)) as channel:
        return pb.CheckResponse.FromString(await _ask(channel, body)).status.code


CODES: Final = {
    "an allowed path": (check("/allow").SerializeToString(), 0),
    "a denied path": (check("/x").SerializeToString(), 16),
    "a query that says allow": (check("/x?allow").SerializeToString(), 16),
    "an empty message": (b"", 7),
    "no message at all": (b"\xff\xff", 7),
}


@pytest.mark.parametrize(("body", "code"), CODES.values(), ids=CODES.keys())
async def test_a_check_is_answered(body: bytes, code: int) -> None:
    async with serve_authz(PATH, FrontPlan(address=HERE), observer=Told()) as address:
        assert await _code(address, body) == code


async def test_the_older_version_of_the_service_is_answered_too() -> None:
    async with (
        serve_authz(TestServer(mode=Mode.PATH), FrontPlan(address=HERE), observer=Told()) as address,
        grpc.aio.insecure_channel(str(address)) as channel,
    ):
        method = "/envoy.service.auth.v2.Authorization/Check"
        body = v2.CheckRequest.FromString(check("/allow").SerializeToString()).SerializeToString()
        reply = v2.CheckResponse.FromString(await _ask(channel, body, method))
        assert (reply.status.code, reply.ok_response.headers[0].header.key) == (0, "Auth-Handler")


async def test_every_decision_is_recorded() -> None:
    told = Told()
    async with serve_authz(PATH, FrontPlan(address=HERE), observer=told) as address:
        for path in ("/allow", "/x"):
            await _code(address, check(path).SerializeToString())
    assert [type(decision) for decision in told.decisions] == [Allow, Deny]


async def test_a_backend_that_raises_does_not_allow() -> None:
    told = Told()
    async with serve_authz(Broken(), FrontPlan(address=HERE), observer=told) as address:
        assert await _code(address, check().SerializeToString()) == 14
        assert await _code(address, check().SerializeToString()) == 14
    assert told.events == ["began", "failed"] * 2


class Raising(Told):
    """Breaks its promise."""

    def decided(self, made: Answer, seconds: float, caller: CallerTrace) -> None:
        raise OSError("hunter2")


async def test_a_decision_applies_even_if_it_cannot_be_recorded() -> None:
    with capture_logs() as lines:
        async with serve_authz(PATH, FrontPlan(address=HERE), observer=Raising()) as address:
            assert await _code(address, check("/allow").SerializeToString()) == 0
            assert await _code(address, check("/x").SerializeToString()) == 16
    assert [line["event"] for line in lines] == ["failed to record a decision"] * 2
    assert "hunter2" not in str(lines)


async def test_a_message_that_is_too_large_fails_and_the_server_lives() -> None:
    async with serve_authz(TestServer(), FrontPlan(address=HERE, largest_message=2000), observer=Told()) as address:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await _code(address, check("/" + "a" * 2000).SerializeToString())
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await _code(address, check("/").SerializeToString()) == 0


async def test_an_unknown_method_is_unimplemented() -> None:
    async with (
        serve_authz(TestServer(), FrontPlan(address=HERE), observer=Told()) as address,
        grpc.aio.insecure_channel(str(address)) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await _ask(channel, b"", f"/{SERVICE}/Decide")
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_says_when_the_backend_is_not_ready() -> None:
    ready = False
    async with (
        serve_authz(TestServer(), FrontPlan(address=HERE), observer=Told(), ready=lambda: ready) as address,
        grpc.aio.insecure_channel(str(address)) as channel,
    ):
        assert Int32Value.FromString(await _ask(channel, b"", "/grpc.health.v1.Health/Check")).value == 2
        ready = True
        assert Int32Value.FromString(await _ask(channel, b"", "/grpc.health.v1.Health/Check")).value == 1


async def test_health_knows_the_server_and_its_service_only() -> None:
    health = "/grpc.health.v1.Health/Check"
    async with (
        serve_authz(TestServer(), FrontPlan(address=HERE), observer=Told()) as address,
        grpc.aio.insecure_channel(str(address)) as channel,
    ):
        for service in ("", SERVICE):
            reply = await _ask(channel, StringValue(value=service).SerializeToString(), health)
            assert Int32Value.FromString(reply).value == 1
        for body, code in (
            (StringValue(value="x").SerializeToString(), grpc.StatusCode.NOT_FOUND),
            (b"\xff", grpc.StatusCode.INVALID_ARGUMENT),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await _ask(channel, body, health)
            assert failure.value.code() is code


async def test_a_unix_socket_is_served(tmp_path: Path) -> None:
    address = UnixAddress(path=str(tmp_path / "authz.sock"))
    async with serve_authz(TestServer(), FrontPlan(address=address), observer=Told()) as bound:
        assert bound == address
        assert await _code(address, check().SerializeToString()) == 0


async def test_a_port_on_every_interface_is_served() -> None:
    async with serve_authz(TestServer(), FrontPlan(address=TcpAddress(host="", port=0)), observer=Told()) as bound:
        assert isinstance(bound, TcpAddress)
        here = TcpAddress(host="127.0.0.1", port=bound.port)
        assert await _code(here, check().SerializeToString()) == 0


async def test_a_taken_port_is_one_sentence() -> None:
    async with serve_authz(TestServer(), FrontPlan(address=HERE), observer=Told()) as address:
        with pytest.raises(AddressTakenError, match=rf"^Cannot listen on {address}: .* listens there\."):
            async with serve_authz(TestServer(), FrontPlan(address=address), observer=Told()):
                pass


NOW: Final = datetime.now(UTC)
DAY: Final = timedelta(days=1)
CA: Final = create_authority("test CA", now=NOW, lifetime=DAY)
OTHER_CA: Final = create_authority("other CA", now=NOW, lifetime=DAY)
SERVER: Final = issue(CA, Leaf(name="authz", ips=("127.0.0.1",)), now=NOW, lifetime=DAY)


def _client(authority: KeyPair) -> KeyPair:
    return issue(authority, Leaf(name="envoy", usage=Usage.CLIENT), now=NOW, lifetime=DAY)


async def _code_over_tls(address: Address, client: KeyPair | None) -> int:
    credentials = grpc.ssl_channel_credentials(
        CA.certificate,
        private_key=client.key.reveal() if client else None,
        certificate_chain=client.certificate if client else None,
    )
    async with grpc.aio.secure_channel(str(address), credentials) as channel:
        return pb.CheckResponse.FromString(await _ask(channel, check().SerializeToString())).status.code


def _over_tls(client_ca: KeyPair | None) -> AbstractAsyncContextManager[Address]:
    tls = ServerTls(
        certificate=SERVER.certificate, key=SERVER.key, client_ca=client_ca.certificate if client_ca else None
    )
    return serve_authz(TestServer(), FrontPlan(address=HERE), observer=Told(), tls=tls)


async def test_tls_without_a_ca_accepts_any_client_but_no_plaintext() -> None:
    async with _over_tls(None) as address:
        assert await _code_over_tls(address, None) == 0
        with pytest.raises(grpc.aio.AioRpcError):
            await _code(address, check().SerializeToString())


async def test_a_ca_really_requires_client_certificates() -> None:
    async with _over_tls(CA) as address:
        assert await _code_over_tls(address, _client(CA)) == 0
        for stranger in (None, _client(OTHER_CA)):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await _code_over_tls(address, stranger)
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE


@contextmanager
def _files(folder: Path) -> Iterator[tuple[str, str, str]]:
    for name, content in (("cert", SERVER.certificate), ("key", SERVER.key.reveal()), ("ca", CA.certificate)):
        (folder / f"{name}.pem").write_bytes(content)
    yield str(folder / "cert.pem"), str(folder / "key.pem"), str(folder / "ca.pem")


def test_tls_files_are_read(tmp_path: Path) -> None:
    with _files(tmp_path) as (certificate, key, ca):
        assert read_server_tls(certificate=certificate, key=key, ca=ca) == ServerTls(
            certificate=SERVER.certificate, key=Secret(SERVER.key.reveal()), client_ca=CA.certificate
        )
    assert read_server_tls(certificate="", key="") is None


def test_tls_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with _files(tmp_path) as (certificate, key, ca):
        for files, message in (
            ((certificate, "", ""), "TLS needs a certificate and its private key"),
            (("", "", ca), "TLS needs a certificate and its private key"),
            ((certificate, str(tmp_path / "no.pem"), ""), "Cannot read .*no.pem: No such file or directory"),
            ((ca, key, ""), "are not a certificate and its private key"),
            ((key, key, ""), "are not a certificate and its private key"),
            ((certificate, key, key), "key.pem has no CA certificate"),
        ):
            with pytest.raises(TlsUnusableError, match=message):
                read_server_tls(certificate=files[0], key=files[1], ca=files[2])


async def test_a_log_that_cannot_be_written_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getattr__(self, _: str) -> object:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("authplane.authserver.fronts.runtime.answer_checks._log", Broken())
    async with serve_authz(TestServer(mode=Mode.PATH), FrontPlan(address=HERE), observer=Raising()) as address:
        assert await _code(address, check("/allow").SerializeToString()) == 0
        assert await _code(address, check("/secret").SerializeToString()) == 16
