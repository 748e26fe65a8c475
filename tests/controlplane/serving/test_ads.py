"""The ADS server with a real gRPC client of each variant."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb
from google.rpc.status_pb2 import Status

from authplane.controlplane.serving.runtime.ads import SERVICE, AddressUnprotectedError, Ads, require_protection
from authplane.controlplane.serving.runtime.ads_stream import AdsEvent, Connected, Disconnected
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue
from authplane.runtime.servers.listen import AddressTakenError, ServerTls, TcpAddress, parse_address
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot, Versioned
from authplane.xds.server.stream_messages import Acked, Nacked

CLUSTER = TypeUrl.CLUSTER
DAY = timedelta(days=1)
ONE = Snapshot.of({CLUSTER: {"a": b"1"}})
TWO = Snapshot.of({CLUSTER: {"a": b"2"}})


class Events:
    """Collects what the server reports."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[AdsEvent] = asyncio.Queue()

    async def next(self) -> AdsEvent:
        async with asyncio.timeout(5):
            return await self.queue.get()


class Client:
    """One stream of either variant."""

    def __init__(self, channel: grpc.aio.Channel, *, delta: bool) -> None:
        method = "DeltaAggregatedResources" if delta else "StreamAggregatedResources"
        reply: Any = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
        self.delta = delta
        self.call: Any = channel.stream_stream(f"/{SERVICE}/{method}", response_deserializer=reply.FromString)()

    async def ask(self, *, version: str = "", nonce: str = "", error: str = "") -> None:
        node = Node(id="edge")
        detail = Status(message=error) if error else None
        request: Any = pb.DiscoveryRequest(
            node=node, type_url=CLUSTER, version_info=version, response_nonce=nonce, error_detail=detail
        )
        if self.delta:
            request = pb.DeltaDiscoveryRequest(
                node=node,
                type_url=CLUSTER,
                initial_resource_versions={"a": version} if version else {},
                response_nonce=nonce,
                error_detail=detail,
            )
        await self.call.write(request.SerializeToString())

    async def read(self) -> tuple[str, bytes]:
        """Return the nonce and the body of the one resource."""
        async with asyncio.timeout(5):
            response = await self.call.read()
        (resource,) = response.resources
        return response.nonce, (resource.resource if self.delta else resource).value

    async def code(self) -> grpc.StatusCode:
        async with asyncio.timeout(5):
            code: grpc.StatusCode = await self.call.code()
            return code


@pytest.fixture
def events() -> Events:
    return Events()


class Server:
    """The server under test, which a test starts and stops when it likes."""

    def __init__(self, sink: Callable[[AdsEvent], None], *, patience: float = 5.0) -> None:
        self.ads = Ads(sink, patience=patience, write_limit=0.5)
        self.publish = self.ads.publish
        self._stack = AsyncExitStack()

    async def serve(self, address: str = "127.0.0.1:0", tls: ServerTls | None = None) -> int:
        bound = await self._stack.enter_async_context(self.ads.serve(parse_address(address), tls))
        return bound.port if isinstance(bound, TcpAddress) else 0

    async def stop(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def ads(events: Events) -> AsyncIterator[Server]:
    server = Server(events.queue.put_nowait)
    yield server
    await server.stop()


@pytest.fixture(params=[False, True], ids=["state of the world", "delta"])
def delta(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@asynccontextmanager
async def connected(target: str, *, delta: bool) -> AsyncIterator[Client]:
    async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Client(channel, delta=delta)


async def test_a_client_that_waits_gets_the_first_snapshot_and_the_next(
    ads: Server, events: Events, delta: bool
) -> None:
    port = await ads.serve()
    async with connected(f"127.0.0.1:{port}", delta=delta) as client:
        await client.ask()
        event = await events.next()
        assert isinstance(event, Connected)
        assert event.node == "edge"
        ads.publish(ONE)
        assert await client.read() == ("1", b"1")
        await client.ask(nonce="1")
        assert await events.next() == Acked(node="edge", type_url=CLUSTER, version=ONE.version(CLUSTER))
        ads.publish(TWO)
        assert await client.read() == ("2", b"2")
        await client.call.done_writing()
        assert await client.code() is grpc.StatusCode.OK
    assert await events.next() == Disconnected(node="edge", peer=event.peer)


async def test_who_comes_back_with_what_it_has_gets_only_the_next_change(
    ads: Server, events: Events, delta: bool
) -> None:
    port = await ads.serve()
    ads.publish(ONE)
    async with connected(f"127.0.0.1:{port}", delta=delta) as client:
        await client.ask(version=Versioned.of(b"1").version if delta else ONE.version(CLUSTER))
        assert isinstance(await events.next(), Connected)
        ads.publish(TWO)
        # Nonce 1: nothing was sent before.
        assert await client.read() == ("1", b"2")


async def test_a_refusal_is_reported(ads: Server, events: Events, delta: bool) -> None:
    port = await ads.serve()
    ads.publish(ONE)
    async with connected(f"127.0.0.1:{port}", delta=delta) as client:
        await client.ask()
        assert isinstance(await events.next(), Connected)
        await client.read()
        await client.ask(nonce="1", error="cluster a: no")
        assert await events.next() == Nacked(
            node="edge", type_url=CLUSTER, version=ONE.version(CLUSTER), names=("a",), message="cluster a: no"
        )


async def test_a_time_limit_moves_the_stream_on(events: Events) -> None:
    ads = Server(events.queue.put_nowait, patience=0.01)
    port = await ads.serve()
    ads.publish(ONE)
    async with connected(f"127.0.0.1:{port}", delta=False) as client:
        await client.ask()
        assert await client.read() == ("1", b"1")
        ads.publish(TWO)
        assert await client.read() == ("2", b"2")
    await ads.stop()


async def test_a_stop_ends_the_streams_at_once(ads: Server, events: Events, delta: bool) -> None:
    port = await ads.serve()
    async with connected(f"127.0.0.1:{port}", delta=delta) as client:
        await client.ask()
        connection = await events.next()
        async with asyncio.timeout(5):
            await ads.stop()
        assert await client.code() is grpc.StatusCode.UNAVAILABLE
    assert isinstance(connection, Connected)
    assert await events.next() == Disconnected(node="edge", peer=connection.peer, reason="the server is shutting down")


@pytest.mark.requirement("X16")
async def test_an_unknown_type_ends_the_stream(ads: Server, delta: bool) -> None:
    port = await ads.serve()
    async with connected(f"127.0.0.1:{port}", delta=delta) as client:
        request: Any = pb.DeltaDiscoveryRequest if delta else pb.DiscoveryRequest
        await client.call.write(request(type_url="x").SerializeToString())
        assert await client.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await client.call.details() == "type URL 'x' is not supported"


@pytest.mark.requirement("X16")
async def test_bytes_that_are_no_request_end_the_stream(ads: Server, delta: bool) -> None:
    port = await ads.serve()
    async with connected(f"127.0.0.1:{port}", delta=delta) as client:
        await client.call.write(b"\xff\xff")
        assert await client.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.slow
@pytest.mark.requirement("X16")
async def test_a_request_of_a_hundred_megabytes_is_not_read(ads: Server) -> None:
    port = await ads.serve()
    async with connected(f"127.0.0.1:{port}", delta=False) as client:
        await client.call.write(b"\0" * 100_000_000)
        assert await client.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.slow
@pytest.mark.requirement("X09")
async def test_a_client_that_does_not_read_loses_its_stream(ads: Server, events: Events) -> None:
    port = await ads.serve()
    ads.publish(Snapshot.of({CLUSTER: {"a": b"x" * 60_000_000}}))
    async with connected(f"127.0.0.1:{port}", delta=False) as client:
        await client.ask()
        connection = await events.next()
        assert isinstance(connection, Connected)
        assert await events.next() == Disconnected(
            node="edge", peer=connection.peer, reason="the client does not read its responses"
        )


async def test_a_port_that_is_taken_is_one_clear_error(ads: Server) -> None:
    port = await ads.serve()
    with pytest.raises(AddressTakenError, match=rf"^Cannot listen on 127.0.0.1:{port}: process \d+ .* listens there\."):
        await Server(print).serve(f"127.0.0.1:{port}")


async def test_a_port_that_another_program_has_is_one_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(AddressTakenError):
        await Server(print).serve(f"127.0.0.1:{other.getsockname()[1]}")


async def test_a_unix_socket_serves_its_owner_alone(ads: Server, tmp_path: Path, delta: bool) -> None:
    path = tmp_path / "ads.sock"
    await ads.serve(f"unix:{path}")
    ads.publish(ONE)
    assert path.stat().st_mode & 0o777 == 0o600
    async with connected(f"unix:{path}", delta=delta) as client:
        await client.ask()
        assert await client.read() == ("1", b"1")
    with pytest.raises(AddressTakenError, match=rf"^Cannot listen on unix:{path}: another program listens there\."):
        await Server(print).serve(f"unix:{path}")


ADDRESSES = {
    "loopback": ("127.0.0.1:18000", True),
    "another loopback": ("127.8.8.8:0", True),
    "loopback v6": ("[::1]:18000", True),
    "localhost": ("localhost:18000", True),
    "a socket": ("unix:/run/ads.sock", True),
    "all interfaces": ("0.0.0.0:18000", False),
    "all interfaces v6": ("[::]:18000", False),
    "no host": (":18000", False),
    "another machine's name": ("example.com:18000", False),
    "a name that only begins like loopback": ("127.0.0.1.example.com:1", False),
}


@pytest.mark.parametrize(("text", "local"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_other_machines_need_a_certificate(text: str, local: bool) -> None:
    address = parse_address(text)
    pair = create_authority("test", now=datetime.now(UTC), lifetime=DAY)
    only_ours = ServerTls(certificate=pair.certificate, key=pair.key)
    mutual = ServerTls(certificate=pair.certificate, key=pair.key, client_ca=pair.certificate)
    require_protection(address, mutual)
    for tls in (None, only_ours):
        if local:
            require_protection(address, tls)
        else:
            with pytest.raises(AddressUnprotectedError):
                require_protection(address, tls)


async def health(target: str, request: bytes = b"") -> bytes:
    async with grpc.aio.insecure_channel(target) as channel, asyncio.timeout(5):
        call: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
        reply: bytes = await call(request)
        return reply


@pytest.mark.requirement("EN-12")
async def test_health_is_serving_once_there_is_a_snapshot(ads: Server) -> None:
    target = f"127.0.0.1:{await ads.serve()}"
    assert await health(target) == b"\x08\x02"
    ads.publish(ONE)
    assert await health(target) == b"\x08\x01"
    assert await health(target, b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode()) == b"\x08\x01"
    with pytest.raises(grpc.aio.AioRpcError, match="unknown service"):
        await health(target, b"\x0a\x01x")


def issued(authority: KeyPair, usage: Usage) -> KeyPair:
    leaf = Leaf(name="test", usage=usage, dns=("edge",), ips=("127.0.0.1",))
    return issue(authority, leaf, now=datetime.now(UTC), lifetime=DAY)


async def ask_over_tls(target: str, trusted: KeyPair, own: KeyPair | None) -> tuple[str, bytes]:
    credentials = grpc.ssl_channel_credentials(
        trusted.certificate,
        own.key.reveal() if own else None,
        own.certificate if own else None,
    )
    async with grpc.aio.secure_channel(target, credentials) as channel:
        client = Client(channel, delta=True)
        async with asyncio.timeout(5):
            await client.ask()
            return await client.read()


async def test_with_tls_only_clients_with_a_certificate_of_the_authority_are_served(ads: Server) -> None:
    authority, stranger = (
        create_authority(name, now=datetime.now(UTC), lifetime=DAY) for name in ("test CA", "other CA")
    )
    server = issued(authority, Usage.SERVER)
    port = await ads.serve(
        "0.0.0.0:0",
        ServerTls(certificate=server.certificate, key=server.key, client_ca=authority.certificate),
    )
    ads.publish(ONE)
    target = f"127.0.0.1:{port}"
    assert await ask_over_tls(target, authority, issued(authority, Usage.CLIENT)) == ("1", b"1")
    for own in (None, issued(stranger, Usage.CLIENT)):
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            await ask_over_tls(target, authority, own)


@pytest.mark.parametrize(
    "method",
    [
        f"/{SERVICE}/FetchAggregatedResources",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
        "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/Watch",
    ],
)
async def test_nothing_else_is_served(ads: Server, method: str) -> None:
    port = await ads.serve()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, asyncio.timeout(5):
        call: Any = channel.unary_unary(method)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
