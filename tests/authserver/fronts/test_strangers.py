"""Whoever shows no certificate of ours gets no answer from any RPC of a server that other machines reach."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from tests.support.authservers.told_checks import Told
from tests.support.certificates import authority, client, server

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue
from authplane.runtime.servers.listen import ServerTls, TcpAddress

EVERYWHERE: Final = TcpAddress(host="0.0.0.0", port=0)
TLS: Final = ServerTls(
    certificate=server("localhost").certificate, key=server("localhost").key, client_ca=authority().certificate
)
NOW: Final = datetime.now(UTC)
DAY: Final = timedelta(days=1)

DISCOVERY: Final = "envoy.service.discovery.v3.AggregatedDiscoveryService"
CONTROL: Final = {
    f"/{DISCOVERY}/StreamAggregatedResources": True,
    f"/{DISCOVERY}/DeltaAggregatedResources": True,
    "/grpc.health.v1.Health/Check": True,
    "/grpc.health.v1.Health/Watch": False,
    "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters": False,
    "/envoy.service.secret.v3.SecretDiscoveryService/StreamSecrets": False,
    "/envoy.service.secret.v3.SecretDiscoveryService/FetchSecrets": False,
    "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus": False,
    "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats": False,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": False,
}
"""What is there, and what others have been reached by."""
CHECKS: Final = {
    "/envoy.service.auth.v3.Authorization/Check": True,
    "/envoy.service.auth.v2.Authorization/Check": True,
    "/grpc.health.v1.Health/Check": True,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": True,
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": True,
    "/grpc.channelz.v1.Channelz/GetServers": False,
}


@asynccontextmanager
async def control() -> AsyncGenerator[int]:
    async with Ads(lambda _: None).serve(EVERYWHERE, TLS) as bound:
        assert isinstance(bound, TcpAddress)
        yield bound.port


@asynccontextmanager
async def checks() -> AsyncGenerator[int]:
    backend = TestServer(mode=Mode.ALL)
    async with serve_authz(backend, FrontPlan(address=EVERYWHERE), observer=Told(), tls=TLS) as bound:
        assert isinstance(bound, TcpAddress)
        yield bound.port


async def code(port: int, method: str, own: KeyPair | None) -> grpc.StatusCode:
    """Return how a call with an empty message ends."""
    key, chain = (own.key.reveal(), own.certificate) if own else (None, None)
    credentials = grpc.ssl_channel_credentials(authority().certificate, key, chain)
    options = (("grpc.ssl_target_name_override", "localhost"), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        # A stream that nobody closes would wait for its server.
        call: Any = channel.unary_unary(method)
        try:
            await call(b"", timeout=5)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK


SERVERS: Final = {"control plane": (control, CONTROL), "authorization service": (checks, CHECKS)}
STRANGERS: Final = {
    "nobody": None,
    "a certificate of another CA": issue(
        create_authority("stranger", now=NOW, lifetime=DAY),
        Leaf(name="x", usage=Usage.CLIENT, dns=("x",)),
        now=NOW,
        lifetime=DAY,
    ),
    "one that has expired": issue(
        authority(), Leaf(name="x", usage=Usage.CLIENT, dns=("x",)), now=NOW - 3 * DAY, lifetime=DAY
    ),
}


@pytest.mark.requirement("X01")
@pytest.mark.requirement("E22")
@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS.keys())
@pytest.mark.parametrize("name", SERVERS)
async def test_a_stranger_reaches_no_rpc(name: str, stranger: KeyPair | None) -> None:
    serve, methods = SERVERS[name]
    async with serve() as port:
        assert {method: await code(port, method, stranger) for method in methods} == dict.fromkeys(
            methods, grpc.StatusCode.UNAVAILABLE
        )


@pytest.mark.requirement("X01")
@pytest.mark.parametrize("name", SERVERS)
async def test_who_is_known_reaches_what_is_there_and_nothing_else(name: str) -> None:
    serve, methods = SERVERS[name]
    async with serve() as port:
        found = {method: await code(port, method, client("envoy")) for method in methods}
    there = {method for method, each in found.items() if each is not grpc.StatusCode.UNIMPLEMENTED}
    assert there == {method for method, wanted in methods.items() if wanted}
