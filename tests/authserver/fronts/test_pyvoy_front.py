"""Both gRPC fronts, asked by a real gRPC client: what holds for one holds for the other. Then what only one does."""

import asyncio
import os
import signal
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import pytest
from cryptography import x509
from envoy.service.auth.v2 import external_auth_pb2 as v2_pb
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from structlog.testing import capture_logs
from tests.support.authservers.check_requests import check
from tests.support.authservers.front_backends import in_workers
from tests.support.authservers.fronts import HERE, Front, Wanted, both, grpcio, pyvoy
from tests.support.envoy.child_envoys import envoys_of
from tests.support.eventually import eventually

from authplane.authserver.engine.check_engine import FAILED
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoyEndedError
from authplane.runtime.servers.listen import (
    Address,
    AddressInvalidError,
    AddressTakenError,
    TcpAddress,
    TlsPaths,
    TlsUnusableError,
    UnixAddress,
)
from authplane.runtime.servers.service_names import SERVICE, SERVICES

NOW: Final = datetime.now(UTC)
DAY: Final = timedelta(days=1)
CA: Final = create_authority("test CA", now=NOW, lifetime=DAY)
OTHER_CA: Final = create_authority("other CA", now=NOW, lifetime=DAY)


async def ask(channel: grpc.aio.Channel, body: bytes, method: str = f"/{SERVICE}/Check") -> bytes:
    call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
    reply: bytes = await call(body, timeout=5)
    return reply


def about(path: str) -> bytes:
    return check(path).SerializeToString()


def code(reply: bytes) -> int:
    return pb.CheckResponse.FromString(reply).status.code


async def refused(channel: grpc.aio.Channel, body: bytes, method: str = f"/{SERVICE}/Check") -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await ask(channel, body, method)
    return failure.value.code()


@both
async def test_checks_are_answered_and_bad_input_changes_nothing(front: Front) -> None:
    large = Wanted(largest_message=2000)
    async with front(large) as address, grpc.aio.insecure_channel(str(address)) as channel:
        for body, want in (
            (about("/allow"), 0),
            (about("/x"), 16),
            (about("/x?allow"), 16),
            (b"", 7),
            (b"\xff\xff", 7),
        ):
            assert code(await ask(channel, body)) == want
        assert await refused(channel, about("/" + "a" * 2000)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await refused(channel, b"", f"/{SERVICE}/Decide") is grpc.StatusCode.UNIMPLEMENTED
        assert await refused(channel, b"", "/x.Y/Check") is grpc.StatusCode.UNIMPLEMENTED
        assert code(await ask(channel, about("/allow"))) == 0


@both
async def test_a_large_message_within_the_limit_is_answered(front: Front) -> None:
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        assert code(await ask(channel, about("/allow" + "a" * 3_000_000))) == 0


@both
async def test_the_older_service_answers_the_same_bytes(front: Front) -> None:
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        for path in ("/allow", "/x"):
            asked = v2_pb.CheckRequest()
            http = asked.attributes.request.http
            http.id, http.method, http.scheme, http.host, http.path = "7", "GET", "https", "shop.example", path
            http.headers["user-agent"] = "test"
            assert asked.SerializeToString() == about(path)
            replies = {await ask(channel, about(path), f"/{service}/Check") for service in SERVICES}
            assert len(replies) == 1
            old = v2_pb.CheckResponse.FromString(replies.pop())
            assert old.status.code == (0 if path == "/allow" else 16)
            headers = old.ok_response.headers if path == "/allow" else old.denied_response.headers
            assert [(each.header.key, each.header.value) for each in headers] == [("Auth-Handler", "testserver")]


ABOUT: Final = {
    "named beside the check": ((("authplane-target", "Backend/a/b"),), {}, "Backend/a/b"),
    "named twice means nothing": (
        (("authplane-target", "Backend/a/b"), ("authplane-target", "Backend/a/c")), {}, "Backend/a/b,Backend/a/c"
    ),
    "the context of the check itself counts more": (
        (("authplane-target", "Backend/a/b"),), {"authplane.target": "Backend/own/x"}, "Backend/own/x"
    ),
}  # fmt: skip


@both
async def test_what_a_check_is_about_can_be_said_beside_it(front: Front) -> None:
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Check", request_serializer=bytes, response_deserializer=bytes)
        for name, (metadata, context, want) in ABOUT.items():
            body = check("/allow", context=context).SerializeToString()
            reply = pb.CheckResponse.FromString(await call(body, metadata=metadata, timeout=5))
            told = {each.header.key: each.header.value for each in reply.ok_response.headers}
            assert (name, told["Auth-Context-Authplane.target"]) == (name, want)


@both
async def test_health_knows_the_server_and_its_services_only(front: Front) -> None:
    health = "/grpc.health.v1.Health/Check"
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        for service in ("", *SERVICES):
            reply = await ask(channel, StringValue(value=service).SerializeToString(), health)
            assert Int32Value.FromString(reply).value == 1
        unknown = StringValue(value="x").SerializeToString()
        assert await refused(channel, unknown, health) is grpc.StatusCode.NOT_FOUND
        assert await refused(channel, b"\xff", health) is grpc.StatusCode.INVALID_ARGUMENT


@both
async def test_a_backend_that_raises_denies_and_makes_no_grpc_error(front: Front) -> None:
    async with front(Wanted(backend="broken")) as address, grpc.aio.insecure_channel(str(address)) as channel:
        assert await ask(channel, about("/allow")) == FAILED


@both
async def test_many_checks_at_a_time_each_get_their_own_answer(front: Front) -> None:
    async with front(Wanted()) as address, grpc.aio.insecure_channel(str(address)) as channel:
        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(channel, about("/allow" if n % 3 else "/x"))) for n in range(300)]
        assert [code(each.result()) for each in asked] == [0 if n % 3 else 16 for n in range(300)]


@both
async def test_a_pending_check_delays_no_other_and_excess_checks_are_rejected(front: Front, tmp_path: Path) -> None:
    pipe = tmp_path / "gate"
    os.mkfifo(pipe)
    wanted = Wanted(backend="gate", file=str(pipe), in_flight=1)
    async with front(wanted) as address, grpc.aio.insecure_channel(str(address)) as channel:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(ask(channel, about("/slow")))
            gate = await _opened(pipe)
            assert code(await ask(channel, about("/free"))) == 0
            assert code(await ask(channel, about("/slow"))) == 14
            assert not waiting.done()
            os.write(gate, b"x")
            os.close(gate)
        assert code(waiting.result()) == 0


async def _opened(pipe: Path) -> int:
    """Open a pipe for writing as soon as the other end reads."""
    found: list[int] = []

    async def opens() -> bool:
        try:
            found.append(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    await eventually(opens)
    return found[0]


@both
async def test_a_unix_socket_is_served_to_this_user_only(front: Front, tmp_path: Path) -> None:
    address = UnixAddress(path=str(tmp_path / "authz.sock"))
    async with front(Wanted(address=address)) as bound, grpc.aio.insecure_channel(str(address)) as channel:
        assert bound == address
        assert os.stat(address.path).st_mode & 0o777 == 0o600  # noqa: PTH116 (a quick look)
        assert code(await ask(channel, about("/allow"))) == 0


@both
async def test_every_interface_is_served(front: Front) -> None:
    async with front(Wanted(address=TcpAddress(host="", port=0))) as bound:
        assert isinstance(bound, TcpAddress)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{bound.port}") as channel:
            assert code(await ask(channel, about("/allow"))) == 0


@both
async def test_a_taken_port_is_one_sentence(front: Front) -> None:
    async with grpcio(Wanted()) as address:
        with pytest.raises(AddressTakenError, match=rf"^Cannot listen on {address}: .* listens there\."):
            async with front(Wanted(address=address)):
                pass


def _server(name: str = "authz") -> KeyPair:
    return issue(CA, Leaf(name=name, ips=("127.0.0.1",)), now=NOW, lifetime=DAY)


def _client(authority: KeyPair) -> KeyPair:
    return issue(authority, Leaf(name="envoy", usage=Usage.CLIENT), now=NOW, lifetime=DAY)


def _files(folder: Path, pair: KeyPair, ca: KeyPair | None = None) -> TlsPaths:
    for name, content in (("cert", pair.certificate), ("key", pair.key.reveal()), ("ca", ca and ca.certificate)):
        if content:
            (folder / f"{name}.pem").write_bytes(content)
    return TlsPaths(
        certificate=str(folder / "cert.pem"), key=str(folder / "key.pem"), ca=str(folder / "ca.pem") if ca else ""
    )


def _secure(address: Address, client: KeyPair | None = None) -> grpc.aio.Channel:
    credentials = grpc.ssl_channel_credentials(
        CA.certificate,
        private_key=client.key.reveal() if client else None,
        certificate_chain=client.certificate if client else None,
    )
    return grpc.aio.secure_channel(str(address), credentials)


@both
async def test_tls_without_a_ca_accepts_any_client_but_no_plaintext(front: Front, tmp_path: Path) -> None:
    async with front(Wanted(tls=_files(tmp_path, _server()))) as address:
        async with _secure(address) as channel:
            assert code(await ask(channel, about("/allow"))) == 0
        async with grpc.aio.insecure_channel(str(address)) as channel:
            assert await refused(channel, about("/allow")) is grpc.StatusCode.UNAVAILABLE


@both
async def test_a_ca_really_requires_client_certificates(front: Front, tmp_path: Path) -> None:
    async with front(Wanted(tls=_files(tmp_path, _server(), CA))) as address:
        async with _secure(address, _client(CA)) as channel:
            assert code(await ask(channel, about("/allow"))) == 0
        for stranger in (None, _client(OTHER_CA)):
            async with _secure(address, stranger) as channel:
                assert await refused(channel, about("/allow")) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.real
async def test_a_replaced_certificate_is_shown_and_a_bad_one_is_not(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with pyvoy(Wanted(tls=_files(tmp_path, _server("first")))) as address, _secure(address) as channel:

            async def bad_one_is_named() -> bool:
                return [line["event"] for line in lines] == ["rejected the new certificate; the last one stays in use"]

            async def second_is_shown() -> bool:
                assert code(await ask(channel, about("/allow"))) == 0
                return await _name(address) == "second"

            (tmp_path / "cert.pem").write_bytes(_server("mismatch").certificate)
            await eventually(bad_one_is_named)
            assert await _name(address) == "first"
            _files(tmp_path, _server("second"))
            await eventually(second_is_shown)


async def _name(address: Address) -> str:
    """Return the name in the certificate that a new connection sees."""
    assert isinstance(address, TcpAddress)
    context = ssl.create_default_context(cadata=CA.certificate.decode())
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    del reader
    return str(x509.load_der_x509_certificate(shown).subject.rdns[0].rfc4514_string().removeprefix("CN="))


@pytest.mark.real
async def test_a_check_in_progress_is_finished_when_the_server_stops(tmp_path: Path) -> None:
    pipe = tmp_path / "gate"
    os.mkfifo(pipe)
    async with asyncio.TaskGroup() as tasks:
        async with pyvoy(Wanted(backend="gate", file=str(pipe))) as address:
            channel = grpc.aio.insecure_channel(str(address))
            waiting = tasks.create_task(ask(channel, about("/slow")))
            gate = await _opened(pipe)
            tasks.create_task(_let_through_when_closed(address, gate))
        assert code(await waiting) == 0
        await channel.close()


async def _let_through_when_closed(address: Address, gate: int) -> None:
    async def closed() -> bool:
        assert isinstance(address, TcpAddress)
        try:
            _, writer = await asyncio.open_connection(address.host, address.port)
        except ConnectionRefusedError:
            return True
        writer.close()
        return False

    await eventually(closed)
    os.write(gate, b"x")
    os.close(gate)


@pytest.mark.real
async def test_workers_share_the_port_and_one_that_dies_is_replaced() -> None:
    front = FrontPlan(address=HERE, workers=2)
    async with in_workers("path", front) as address:
        first = _workers()
        assert len(first) == 2
        os.kill(min(first), signal.SIGKILL)

        async def replaced() -> bool:
            return len(_workers()) == 2 and min(first) not in _workers()

        await eventually(replaced)
        async with grpc.aio.insecure_channel(str(address)) as channel:

            async def answers() -> bool:
                try:
                    return code(await ask(channel, about("/allow"))) == 0
                except grpc.aio.AioRpcError:
                    return False  # a connection that was given to the worker that died

            await eventually(answers)
    assert not _workers()


@pytest.mark.real
@pytest.mark.requirement("F07")
async def test_a_worker_for_which_there_is_no_room_is_replaced_later_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = FrontPlan(address=HERE, workers=2)
    with capture_logs() as lines:
        async with in_workers("path", front):
            first = _workers()
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
            os.kill(min(first), signal.SIGKILL)

            async def said() -> bool:
                return "worker failed to start" in [line["event"] for line in lines]

            async def replaced() -> bool:
                return len(_workers()) == 2

            await eventually(said)
            assert _workers() == {max(first)}
            monkeypatch.undo()
            await eventually(replaced)
            assert max(first) in _workers()


@pytest.mark.real
async def test_the_first_worker_for_which_there_is_no_room_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(EnvoyEndedError, match=r"^Cannot start a worker: \[Errno 2\] No such file or directory: "):
        async with in_workers("path", FrontPlan(address=HERE)):
            pass


@pytest.mark.real
async def test_no_thread_of_a_worker_interrupts_another_by_waking_it() -> None:
    async with in_workers("path", FrontPlan(address=HERE)) as address:
        async with grpc.aio.insecure_channel(str(address)) as channel:
            assert code(await ask(channel, about("/allow"))) == 0
        (worker,) = _workers()
        assert set(_schedulers(worker)) == {os.SCHED_BATCH}


def _schedulers(process: int) -> list[int]:
    """Tell how the kernel schedules each thread."""
    return [os.sched_getscheduler(int(folder.name)) for folder in Path(f"/proc/{process}/task").iterdir()]


def _workers() -> set[int]:
    """Return the Envoys that this process runs."""
    return set(envoys_of(os.getpid()))


@pytest.mark.real
async def test_what_cannot_start_is_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    lines: list[str] = []

    async def keep(line: Line) -> None:
        lines.append(line.text)

    with pytest.raises(EnvoyEndedError, match="no backend is called nothing"):
        async with in_workers("nothing", FrontPlan(address=HERE), sink=keep):
            pass
    socket = UnixAddress(path=str(tmp_path / "s"))
    with pytest.raises(AddressInvalidError, match=f"^2 workers cannot share {socket}\\. Use a port\\.$"):
        async with in_workers("nothing", FrontPlan(address=socket, workers=2)):
            pass
    files = TlsPaths(certificate=str(tmp_path / "none"), key=str(tmp_path / "none"))
    with pytest.raises(TlsUnusableError, match="Cannot read"):
        async with in_workers("nothing", FrontPlan(address=HERE, tls=files)):
            pass
    assert not _workers()
