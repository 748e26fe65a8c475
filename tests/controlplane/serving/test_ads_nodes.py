"""Over TLS, a client is who its certificate says for the whole stream, and gets what is for it and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3 import discovery_pb2 as pb
from tests.support.certificates import authority, client, server

from authplane.controlplane.serving.runtime.ads import SERVICE, Ads, Clients
from authplane.controlplane.serving.runtime.ads_stream import AdsEvent, Disconnected
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, issue
from authplane.runtime.servers.listen import ServerTls, TcpAddress
from authplane.xds.server.node_identity import NodeName, NodeRules
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot

LIMIT: Final = 20
TLS: Final = ServerTls(
    certificate=server("localhost").certificate, key=server("localhost").key, client_ca=authority().certificate
)
HOST: Final = "ingress_https"
PROGRAM: Final = "grpc/default/api/127.0.0.1:50051"
KEY: Final = "default/tls"
ALL: Final = Snapshot.of(
    {TypeUrl.LISTENER: {HOST: b"1", PROGRAM: b"2"}, TypeUrl.SECRET: {KEY: b"3"}, TypeUrl.CLUSTER: {"a": b"4"}}
)
EDGE_ONLY: Final = Clients(rules=NodeRules(envoys=frozenset({"edge"})))


class Stream:
    """One stream of either variant, which asks for names."""

    def __init__(self, channel: grpc.aio.Channel, *, delta: bool) -> None:
        method = "DeltaAggregatedResources" if delta else "StreamAggregatedResources"
        reply: Any = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
        self.delta = delta
        self.call: Any = channel.stream_stream(f"/{SERVICE}/{method}", response_deserializer=reply.FromString)()

    async def ask(self, node: str, type_url: TypeUrl, *names: str) -> None:
        request: Any = pb.DiscoveryRequest(node=Node(id=node), type_url=type_url, resource_names=names)
        if self.delta:
            request = pb.DeltaDiscoveryRequest(
                node=Node(id=node), type_url=type_url, resource_names_subscribe=names or ["*"]
            )
        await self.call.write(request.SerializeToString())

    async def read(self) -> Any:
        async with asyncio.timeout(LIMIT):
            return await self.call.read()

    async def ended(self) -> tuple[grpc.StatusCode, str]:
        async with asyncio.timeout(LIMIT):
            return await self.call.code(), await self.call.details()


@pytest.fixture(params=[False, True], ids=["state of the world", "delta"])
def delta(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@asynccontextmanager
async def serving(told: list[AdsEvent], clients: Clients) -> AsyncIterator[int]:
    ads = Ads(told.append)
    ads.publish(ALL)
    async with ads.serve(TcpAddress(host="0.0.0.0", port=0), TLS, clients) as bound:
        assert isinstance(bound, TcpAddress)
        yield bound.port


@asynccontextmanager
async def connected(port: int, own: KeyPair, *, delta: bool) -> AsyncIterator[Stream]:
    credentials = grpc.ssl_channel_credentials(authority().certificate, own.key.reveal(), own.certificate)
    options = (("grpc.ssl_target_name_override", "localhost"), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        yield Stream(channel, delta=delta)


def named(common: str, *dns: str) -> KeyPair:
    """Issue a client's certificate with names of both sorts."""
    leaf = Leaf(name=common, usage=Usage.CLIENT, dns=dns)
    return issue(authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))


async def held(stream: Stream, node: str, type_url: TypeUrl, *names: str) -> set[str]:
    """Return which of these resources a client of the incremental variant gets; all that there are without names."""
    await stream.ask(node, type_url, *names)
    response = await stream.read()
    return {each.name for each in response.resources}


@pytest.mark.requirement("X02")
async def test_a_node_that_is_not_in_the_certificate_gets_nothing(delta: bool) -> None:
    told: list[AdsEvent] = []
    async with serving(told, Clients()) as port, connected(port, client("edge"), delta=delta) as stream:
        await stream.ask("other", TypeUrl.SECRET, KEY)
        code, details = await stream.ended()
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert details == "node id 'other' is not a name in the client's certificate, which has: edge"
    (event,) = told
    assert isinstance(event, Disconnected)
    assert event.reason == details


@pytest.mark.requirement("X02")
async def test_a_node_does_not_change_on_a_stream(delta: bool) -> None:
    # Both names are in the certificate: even so, one stream is one node.
    async with serving([], Clients()) as port, connected(port, named("x", "edge", "api"), delta=delta) as stream:
        await stream.ask("edge", TypeUrl.CLUSTER)
        await stream.read()
        await stream.ask("api", TypeUrl.SECRET, KEY)
        code, details = await stream.ended()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert details == "the node id changed on the stream, from 'edge' to 'api'"


@pytest.mark.requirement("X02")
async def test_a_grpc_server_gets_its_listener_and_no_keys() -> None:
    async with serving([], EDGE_ONLY) as port, connected(port, client("api"), delta=True) as stream:
        assert await held(stream, "api", TypeUrl.LISTENER, PROGRAM, HOST) == {PROGRAM}
        assert await held(stream, "api", TypeUrl.SECRET, KEY) == set()
        assert await held(stream, "api", TypeUrl.CLUSTER) == set()


@pytest.mark.requirement("X02")
@pytest.mark.parametrize("clients", [EDGE_ONLY, Clients()], ids=["among others", "alone"])
async def test_an_envoy_gets_its_keys_and_no_listener_of_a_grpc_server(clients: Clients) -> None:
    async with serving([], clients) as port, connected(port, client("edge"), delta=True) as stream:
        assert await held(stream, "edge#1", TypeUrl.LISTENER) == {HOST}
        assert await held(stream, "edge#1", TypeUrl.SECRET, KEY) == {KEY}
    async with serving([], clients) as port, connected(port, client("edge"), delta=True) as stream:
        assert await held(stream, "edge", TypeUrl.LISTENER, PROGRAM) == set()


async def test_the_common_name_counts_where_the_operator_says_so() -> None:
    own, clients = named("edge", "other"), Clients(names=NodeName.CN)
    async with serving([], clients) as port, connected(port, own, delta=True) as stream:
        assert await held(stream, "edge", TypeUrl.SECRET, KEY) == {KEY}
    async with serving([], clients) as port, connected(port, own, delta=True) as stream:
        await stream.ask("other", TypeUrl.SECRET, KEY)
        assert (await stream.ended())[0] is grpc.StatusCode.PERMISSION_DENIED
