"""The xDS client over real connections: a server of messages only, and our own control plane."""

import asyncio
import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest
from envoy.config.listener.v3.listener_pb2 import Listener
from tests.dataplane.runtime.running_client import xds_client
from tests.support import certificates
from tests.support.eventually import eventually
from tests.support.grpc.scripted_ads import ScriptedAds

from authplane.controlplane.graph.model.programming import NoProxy, ServerAnswers
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.core.feature_flags import FeatureFlags
from authplane.core.problems import Problem
from authplane.dataplane.runtime.xds.xds_client import XdsClient, XdsClientThread
from authplane.dataplane.runtime.xds.xds_stream import StreamLimits
from authplane.runtime.servers.listen import TcpAddress
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, parse_bootstrap
from authplane.xds.client.watch_events import Ambient, Changed, Event, Failed, Trouble
from authplane.xds.client.watched_types import Decoded, Invalid, ResourceType, Source
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot

URL = TypeUrl.LISTENER.value
LIMITS = StreamLimits(connect=3, write=0.5)


def decode(body: bytes, _: Source) -> Decoded[str] | Invalid:
    message = Listener.FromString(body)
    if message.stat_prefix == "raise":
        raise RuntimeError("a filter of a user")
    if message.stat_prefix == "bad":
        return Invalid(name=message.name, problems=(Problem(("stat_prefix",), "Bad", "is bad"),))
    return Decoded(name=message.name, value=message.stat_prefix)


KIND = ResourceType(type_url=URL, decode=decode, full_set=True)


def listener(name: str, prefix: str) -> bytes:
    return Listener(name=name, stat_prefix=prefix).SerializeToString()


def bootstrap(*targets: str, creds: list[dict[str, Any]] | None = None, calls: list[Any] | None = None) -> Bootstrap:
    servers = [
        {"server_uri": target, "channel_creds": creds or [{"type": "insecure"}], "call_creds": calls or []}
        for target in targets
    ]
    text = json.dumps({"xds_servers": servers, "node": {"id": "node", "metadata": {"k": "v"}}})
    made = parse_bootstrap(text.encode(), FeatureFlags())
    assert isinstance(made, Bootstrap)
    return made


class Told:
    """What a watcher hears, for a test that waits for it."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Event[str]] = asyncio.Queue()

    def __call__(self, event: Event[str]) -> None:
        self.queue.put_nowait(event)

    async def next(self, limit: float = 5.0) -> Event[str]:
        async with asyncio.timeout(limit):
            return await self.queue.get()


@pytest.fixture
async def ads() -> AsyncIterator[ScriptedAds]:
    async with ScriptedAds().serve() as server:
        yield server


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield

    async def gone() -> bool:
        left = asyncio.all_tasks() - before - {asyncio.current_task()}
        return not [task for task in left if "xds" in repr(task.get_coro()).lower()]

    await eventually(gone)


@pytest.mark.requirement("XC-1")
async def test_a_resource_is_requested_accepted_changed_rejected_and_deleted(ads: ScriptedAds) -> None:
    told = Told()
    async with xds_client(bootstrap(ads.target), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", told)
        call = await ads.next()
        first = await call.read()
        assert (first.node.id, first.node.metadata["k"], first.node.user_agent_name) == ("node", "v", "authplane")
        assert (first.type_url, list(first.resource_names), first.version_info) == (URL, ["a"], "")
        await call.send(URL, listener("a", "1"), version="1", nonce="x")
        assert await told.next() == Changed("1")
        ack = await call.read()
        assert (ack.version_info, ack.response_nonce, ack.HasField("node")) == ("1", "x", False)
        await call.send(URL, listener("a", "bad"), version="2", nonce="y")
        event = await told.next()
        assert isinstance(event, Ambient)
        nack = await call.read()
        assert (nack.version_info, nack.response_nonce) == ("1", "y")
        assert nack.error_detail.message == "a: stat_prefix: is bad [Bad]"
        await call.send(URL, version="3", nonce="z")
        assert (await call.read()).version_info == "3"
        event = await told.next()
        assert isinstance(event, Ambient)
        assert event.fault is not None
        assert event.fault.trouble is Trouble.NOT_FOUND
        call.end()


async def test_a_decoder_that_fails_refuses_the_resource_and_the_client_goes_on(ads: ScriptedAds) -> None:
    told = Told()
    async with xds_client(bootstrap(ads.target), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", told)
        call = await ads.next()
        await call.read()
        await call.send(URL, listener("a", "raise"), version="1", nonce="x")
        nack = await call.read()
        assert nack.error_detail.message == (
            "resources[0]: Internal error while reading the resource."
            " Report this with the log of authplane.xds. [Internal]"
        )
        await call.send(URL, listener("a", "1"), version="2", nonce="y")
        assert await told.next() == Changed("1")
        call.end()


async def test_a_watcher_that_fails_keeps_nothing_from_the_others(ads: ScriptedAds) -> None:
    def broken(_: Event[str]) -> None:
        raise RuntimeError("not ours")

    told = Told()
    async with xds_client(bootstrap(ads.target), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", broken)
        client.watch(KIND, "a", told)
        call = await ads.next()
        await call.read()
        await call.send(URL, listener("a", "1"))
        assert await told.next() == Changed("1")
        call.end()


async def test_watchers_share_a_subscription_that_ends_with_the_last_of_them(ads: ScriptedAds) -> None:
    async with xds_client(bootstrap(ads.target), [KIND], limits=LIMITS) as client:
        first, second = client.events(KIND, "a"), Told()
        other = client.watch(KIND, "b", Told())
        waiting = asyncio.ensure_future(anext(first))
        call = await ads.next()
        assert list((await call.read()).resource_names) == ["a", "b"]
        await call.send(URL, listener("a", "1"))
        assert await waiting == Changed("1")
        watch = client.watch(KIND, "a", second)
        assert await second.next() == Changed("1")
        await call.read()
        await first.aclose()
        watch.cancel()
        watch.cancel()
        assert list((await call.read()).resource_names) == ["b"]
        other.cancel()
        await call.closed()
        assert client.dump().resources == ()
        call.end()


@pytest.mark.slow
@pytest.mark.requirement("XC-9")
async def test_a_server_that_refuses_the_client_makes_the_resource_unavailable(ads: ScriptedAds) -> None:
    told = Told()
    async with xds_client(bootstrap(ads.target), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", told)
        call = await ads.next()
        call.end(grpc.StatusCode.PERMISSION_DENIED, "not you")
        event = await told.next()
        assert isinstance(event, Failed)
        assert event.fault.trouble is Trouble.UNREACHABLE
        assert "PERMISSION_DENIED: not you" in event.fault.message
        (await ads.next()).end()


async def test_bytes_that_are_no_response_end_the_stream(ads: ScriptedAds) -> None:
    told = Told()
    async with xds_client(bootstrap(ads.target), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", told)
        call = await ads.next()
        await call.send_bytes(b"\xff\xff")
        event = await told.next()
        assert isinstance(event, Failed)
        assert "the server sent an invalid discovery response" in event.fault.message
        await call.closed()
        call.end()


@pytest.mark.slow
async def test_a_server_that_does_not_read_is_given_up() -> None:
    closed = asyncio.Event()

    async def settings_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Enough HTTP/2 for a connection, and never room for more data than a stream has at first.
        writer.write(b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\0\x04\x01\0\0\0\0")
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass
        writer.close()
        closed.set()

    told = Told()
    async with await asyncio.start_server(settings_only, "127.0.0.1", 0) as server:
        target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with xds_client(bootstrap(target), [KIND], limits=LIMITS) as client:
            client.watch(KIND, "a" * 200_000, told)
            event = await told.next()
            assert isinstance(event, Failed)
            assert "the server did not read a request within 0.5 s" in event.fault.message
        async with asyncio.timeout(5):
            await closed.wait()


@pytest.mark.slow
@pytest.mark.requirement("XC-3")
async def test_a_server_that_dies_leaves_the_resource_in_use_and_returns_with_other_versions() -> None:
    server, told = ScriptedAds(), Told()
    async with server.serve():
        client = XdsClient(bootstrap(server.target), [KIND], limits=LIMITS)
        running = asyncio.ensure_future(client.run())
        client.watch(KIND, "a", told)
        call = await server.next()
        await call.read()
        await call.send(URL, listener("a", "1"), version="7")
        assert await told.next() == Changed("1")
    event = await told.next()
    assert isinstance(event, Ambient)
    assert event.fault is not None
    assert event.fault.trouble is Trouble.UNREACHABLE
    async with server.serve():
        call = await server.next(limit=10)
        request = await call.read()
        assert (request.version_info, request.response_nonce, request.node.id) == ("", "", "node")
        await call.send(URL, listener("a", "2"), version="1", nonce="first")
        told_now = [await told.next()]
        while not isinstance(told_now[-1], Changed):
            told_now.append(await told.next())
        assert told_now[-1] == Changed("2")
        assert (await call.read()).version_info == "1"
        client.stop()
        await asyncio.wait_for(running, 5)
        call.end()


@pytest.mark.slow
@pytest.mark.requirement("XC-8")
async def test_the_second_server_serves_while_the_first_cannot_be_reached_and_the_first_returns() -> None:
    first, second, told = ScriptedAds(), ScriptedAds(), Told()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        first.port = free.getsockname()[1]
    async with second.serve(), xds_client(bootstrap(first.target, second.target), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", told)
        fallback = await second.next()
        await fallback.read()
        await fallback.send(URL, listener("a", "from the second"))
        assert await told.next() == Changed("from the second")
        async with first.serve():
            call = await first.next(limit=10)
            await call.read()
            await call.send(URL, listener("a", "from the first"))
            assert await told.next() == Changed("from the first")
            await fallback.closed()
            fallback.end()
            client.stop()
            await call.closed()
            call.end()


async def test_an_unreachable_server_is_reported_with_the_reason() -> None:
    told = Told()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        target = f"127.0.0.1:{free.getsockname()[1]}"
        async with xds_client(bootstrap(target), [KIND], limits=LIMITS) as client:
            client.watch(KIND, "a", told)
            event = await told.next()
            assert isinstance(event, Failed)
            assert "UNAVAILABLE" in event.fault.message
            assert target in event.fault.message


@pytest.mark.slow
async def test_who_accepts_connections_and_never_says_a_word_is_given_up() -> None:
    told = Told()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        async with xds_client(bootstrap(target), [KIND], limits=StreamLimits(connect=0.3)) as client:
            client.watch(KIND, "a", told)
            event = await told.next()
            assert isinstance(event, Failed)
            assert "no connection within 0.3 s" in event.fault.message


async def test_certificates_that_cannot_be_used_are_a_fault_and_no_crash(tmp_path: Path) -> None:
    told = Told()
    creds = [{"type": "tls", "config": {"ca_certificate_file": str(tmp_path / "absent.pem")}}]
    async with xds_client(bootstrap("127.0.0.1:1", creds=creds), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", told)
        event = await told.next()
        assert isinstance(event, Failed)
        assert event.fault.trouble is Trouble.UNREACHABLE


async def test_a_stream_over_tls_carries_the_token_of_a_file(tmp_path: Path) -> None:
    pair = certificates.server("localhost")
    (tmp_path / "ca.pem").write_bytes(certificates.authority().certificate)
    claims = base64.urlsafe_b64encode(json.dumps({"exp": int(time.time()) + 3600}).encode()).rstrip(b"=").decode()
    token = f"e30.{claims}.c2ln"
    (tmp_path / "token").write_text(token)
    creds = [{"type": "tls", "config": {"ca_certificate_file": str(tmp_path / "ca.pem")}}]
    calls = [{"type": "jwt_token_file", "config": {"jwt_token_file": str(tmp_path / "token")}}]
    server, told = ScriptedAds(), Told()
    async with server.serve(grpc.ssl_server_credentials([(pair.key.reveal(), pair.certificate)])):
        made = bootstrap(f"localhost:{server.port}", creds=creds, calls=calls)
        async with xds_client(made, [KIND], limits=LIMITS) as client:
            client.watch(KIND, "a", told)
            call = await server.next()
            assert call.metadata["authorization"] == f"Bearer {token}"
            await call.read()
            await call.send(URL, listener("a", "1"), version="1", nonce="x")
            assert await told.next() == Changed("1")
            assert (await call.read()).response_nonce == "x"
            call.end()


async def test_a_token_file_that_is_missing_makes_the_resource_unavailable(tmp_path: Path) -> None:
    pair = certificates.server("localhost")
    (tmp_path / "ca.pem").write_bytes(certificates.authority().certificate)
    creds = [{"type": "tls", "config": {"ca_certificate_file": str(tmp_path / "ca.pem")}}]
    calls = [{"type": "jwt_token_file", "config": {"jwt_token_file": str(tmp_path / "absent")}}]
    server, told = ScriptedAds(), Told()
    async with server.serve(grpc.ssl_server_credentials([(pair.key.reveal(), pair.certificate)])):
        made = bootstrap(f"localhost:{server.port}", creds=creds, calls=calls)
        async with xds_client(made, [KIND], limits=LIMITS) as client:
            client.watch(KIND, "a", told)
            event = await told.next()
            assert isinstance(event, Failed)
            assert event.fault.trouble is Trouble.UNREACHABLE


async def test_our_control_plane_and_our_client_agree() -> None:
    events: asyncio.Queue[object] = asyncio.Queue()
    control, told = Ads(events.put_nowait), Told()
    async with control.serve(TcpAddress(host="127.0.0.1", port=0)) as bound:
        assert isinstance(bound, TcpAddress)
        control.publish(Snapshot.of({TypeUrl.LISTENER: {"a": listener("a", "1"), "z": listener("z", "bad")}}))
        async with xds_client(bootstrap(f"127.0.0.1:{bound.port}"), [KIND], limits=LIMITS) as client:
            client.watch(KIND, "a", told)
            assert await told.next() == Changed("1")
            control.publish(Snapshot.of({TypeUrl.LISTENER: {"a": listener("a", "2")}}))
            assert await told.next() == Changed("2")
            control.publish(Snapshot.of({TypeUrl.LISTENER: {"a": listener("a", "bad")}}))
            assert isinstance(await told.next(), Ambient)

            async def refused() -> bool:
                a = (TypeUrl.LISTENER, "a")
                said = ServerAnswers(asked=frozenset({a}), refused={a: "a: stat_prefix: is bad [Bad]"})
                return control.programming() == NoProxy(said)

            await eventually(refused)
            control.publish(Snapshot.of({TypeUrl.LISTENER: {"a": listener("a", "3")}}))
            assert await told.next() == Changed("3")


async def test_two_clients_in_one_process_share_nothing(ads: ScriptedAds) -> None:
    made = bootstrap(ads.target)
    told, other = Told(), Told()
    async with xds_client(made, [KIND], limits=LIMITS) as one:
        one.watch(KIND, "a", told)
        call = await ads.next()
        await call.read()
        async with xds_client(made, [KIND], limits=LIMITS) as two:
            two.watch(KIND, "a", other)
            second = await ads.next()
            assert (await second.read()).node.id == "node"
            assert call.context.peer() != second.context.peer()
            await call.send(URL, listener("a", "1"))
            await second.send(URL, listener("a", "2"))
            assert (await told.next(), await other.next()) == (Changed("1"), Changed("2"))
        await second.closed()
        second.end()
        await call.read()
        await call.send(URL, listener("a", "3"), nonce="m")
        assert await told.next() == Changed("3")
        call.end()


class Threaded:
    """What a watcher hears on another thread."""

    def __init__(self) -> None:
        self.queue: Queue[Event[str]] = Queue()

    async def next(self) -> Event[str]:
        return await asyncio.to_thread(lambda: self.queue.get(timeout=5))


async def test_any_thread_may_use_a_client_with_a_thread_of_its_own(ads: ScriptedAds) -> None:
    told = Threaded()

    def begin() -> tuple[XdsClientThread, Callable[[], None]]:
        client = XdsClientThread(bootstrap(ads.target), [KIND], limits=LIMITS)
        return client, client.watch(KIND, "a", told.queue.put).cancel

    client, cancel = await asyncio.to_thread(begin)
    call = await ads.next()
    await call.read()
    await call.send(URL, listener("a", "1"), nonce="x")
    assert await told.next() == Changed("1")
    dump = await asyncio.to_thread(client.dump)
    assert [(each.key.name, each.held and each.held.value) for each in dump.resources] == [("a", "1")]
    assert (await call.read()).response_nonce == "x"
    await asyncio.to_thread(cancel)
    await call.closed()
    await asyncio.to_thread(client.close)
    await asyncio.to_thread(client.close)
    assert not [thread for thread in threading.enumerate() if thread.name == "xds client"]
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(client.dump)
    assert client.watch(KIND, "a", told.queue.put).cancel() is None  # type: ignore[func-returns-value]
    call.end()


async def test_a_client_that_is_stopped_ends_its_streams(ads: ScriptedAds) -> None:
    async with xds_client(bootstrap(ads.target), [KIND], limits=LIMITS) as client:
        client.watch(KIND, "a", Told())
        call = await ads.next()
        await call.read()
    await call.closed()
    call.end()
