"""Which edition of a generation the ADS server gives to whom."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
import pytest
from envoy.config.core.v3.base_pb2 import BuildVersion, Node
from envoy.service.discovery.v3 import discovery_pb2 as pb
from envoy.type.v3.semantic_version_pb2 import SemanticVersion
from tests.support.eventually import eventually

from authplane.controlplane.graph.model.programming import Answered, NoProxy
from authplane.controlplane.serving.runtime.ads import SERVICE, Ads
from authplane.core.envoy_releases import CURRENT, NEWEST, OLDEST, Release
from authplane.runtime.servers.listen import TcpAddress, parse_address
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot

CLUSTER = TypeUrl.CLUSTER


def envoy(major: int, minor: int) -> Node:
    version = SemanticVersion(major_number=major, minor_number=minor, patch=3)
    return Node(id="edge", user_agent_name="envoy", user_agent_build_version=BuildVersion(version=version))


class Case(NamedTuple):
    node: Node
    want: Release | None


CASES = {
    "an Envoy gets what is made for its release": Case(envoy(1, 37), Release(1, 37)),
    "the oldest that can decide": Case(envoy(1, 36), OLDEST),
    "an older one": Case(envoy(1, 35), None),
    "a newer one than the newest that we know": Case(envoy(1, 99), NEWEST),
    "a newer major version": Case(envoy(2, 0), NEWEST),
    "one that does not say its version": Case(Node(id="edge", user_agent_name="envoy"), None),
    "one that says it in words alone": Case(Node(user_agent_name="envoy", user_agent_version="1.39.3"), None),
    "another proxy": Case(Node(id="edge", user_agent_name="other"), None),
    "somebody who does not say who it is": Case(Node(id="edge"), None),
    "a gRPC client, for which there is nothing of its own": Case(Node(user_agent_name="gRPC C-core linux"), CURRENT),
    "a gRPC server of ours": Case(Node(user_agent_name="authplane"), CURRENT),
}


class Made:
    """A generation with one cluster, whose content says for whom it is."""

    def __init__(self, word: str, *, fails: bool = False) -> None:
        self.asked: list[Release | None] = []
        self._word = word
        self._fails = fails

    def edition(self, release: Release | None) -> Snapshot:
        self.asked.append(release)
        if self._fails:
            raise ValueError("cannot be rendered")
        return Snapshot.of({CLUSTER: {"a": f"{self._word} for {release}".encode()}})


class Client:
    """One stream of either variant."""

    def __init__(self, channel: grpc.aio.Channel, *, delta: bool) -> None:
        method = "DeltaAggregatedResources" if delta else "StreamAggregatedResources"
        reply: Any = pb.DeltaDiscoveryResponse if delta else pb.DiscoveryResponse
        self.delta = delta
        self.call: Any = channel.stream_stream(f"/{SERVICE}/{method}", response_deserializer=reply.FromString)()

    async def say(self, node: Node | None = None, nonce: str = "") -> None:
        kind: Any = pb.DeltaDiscoveryRequest if self.delta else pb.DiscoveryRequest
        await self.call.write(kind(node=node, type_url=CLUSTER, response_nonce=nonce).SerializeToString())

    async def read(self) -> str:
        """Return the one resource, and accept it."""
        async with asyncio.timeout(5):
            response = await self.call.read()
        (resource,) = response.resources
        await self.say(nonce=response.nonce)
        body: bytes = (resource.resource if self.delta else resource).value
        return body.decode()


@asynccontextmanager
async def serving(ads: Ads) -> AsyncGenerator[str]:
    async with ads.serve(parse_address("127.0.0.1:0")) as bound:
        assert isinstance(bound, TcpAddress)
        yield f"127.0.0.1:{bound.port}"


@asynccontextmanager
async def connected(target: str, *, delta: bool = False) -> AsyncGenerator[Client]:
    async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Client(channel, delta=delta)


@pytest.mark.parametrize("delta", [False, True], ids=["state of the world", "delta"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_who_gets_which_edition(case: Case, delta: bool) -> None:
    ads = Ads(lambda _: None)
    ads.publish(Made("first"))
    async with serving(ads) as target, connected(target, delta=delta) as client:
        await client.say(case.node)
        assert await client.read() == f"first for {case.want}"
        ads.publish(Made("second"))
        assert await client.read() == f"second for {case.want}"


async def test_each_client_gets_its_own_edition_and_no_unused_one_is_made() -> None:
    ads, made = Ads(lambda _: None), Made("first")
    async with serving(ads) as target, connected(target) as old, connected(target) as new:
        await old.say(envoy(1, 36))
        await new.say(envoy(1, 40))
        ads.publish(made)
        assert (await old.read(), await new.read()) == ("first for 1.36", "first for 1.40")
        # Whoever says at last who it is was not waited for, and nothing was made for it.
        assert set(made.asked) == {Release(1, 36), Release(1, 40)}
        async with connected(target) as silent:
            later = Made("second")
            ads.publish(later)
            assert (await old.read(), await new.read()) == ("second for 1.36", "second for 1.40")
            assert sorted(map(str, later.asked)) == ["1.36", "1.40"]
            await silent.say(Node(id="late"))
            assert await silent.read() == "second for None"


async def test_the_release_is_that_of_the_first_request() -> None:
    ads = Ads(lambda _: None)
    ads.publish(Made("first"))
    async with serving(ads) as target, connected(target) as client:
        await client.say(envoy(1, 38))
        assert await client.read() == "first for 1.38"
        await client.say(envoy(1, 36), nonce="1")
        ads.publish(Made("second"))
        assert await client.read() == "second for 1.38"


async def test_a_generation_that_fails_for_one_edition_reaches_no_client() -> None:
    ads = Ads(lambda _: None)
    ads.publish(Made("first"))
    async with serving(ads) as target, connected(target) as client:
        await client.say(envoy(1, 38))
        assert await client.read() == "first for 1.38"
        with pytest.raises(ValueError, match="cannot be rendered"):
            ads.publish(Made("second", fails=True))
        async with connected(target) as other:
            await other.say(envoy(1, 39))
            assert await other.read() == "first for 1.39"


async def test_a_stream_on_which_nothing_was_said_is_no_proxy() -> None:
    ads = Ads(lambda _: None)
    ads.publish(Made("first"))
    async with serving(ads) as target, connected(target) as client:
        assert ads.programming() == NoProxy()
        await client.say(envoy(1, 38))
        assert await client.read() == "first for 1.38"

        async def accepted() -> bool:
            return ads.programming() == Answered()

        await eventually(accepted)


async def test_the_oldest_proxy_counts_as_long_as_it_is_connected() -> None:
    ads = Ads(lambda _: None)
    ads.publish(Made("first"))
    assert ads.oldest() == CURRENT
    async with serving(ads) as target, connected(target) as new:
        await new.say(envoy(1, 40))
        await new.read()
        assert ads.oldest() == Release(1, 40)
        async with connected(target) as old, connected(target) as silent:
            await old.say(envoy(1, 37))
            await old.read()
            assert ads.oldest() == Release(1, 37)
            await silent.say(Node(id="edge"))
            await silent.read()
            assert ads.oldest() is None

        async def alone() -> bool:
            return ads.oldest() == Release(1, 40)

        await eventually(alone)
