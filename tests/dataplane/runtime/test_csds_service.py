"""The client status service on real servers, beside real clients."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from envoy.admin.v3 import config_dump_shared_pb2 as admin_pb
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.service.status.v3 import csds_pb2 as pb
from tests.dataplane.runtime.running_client import xds_client
from tests.support.eventually import eventually
from tests.support.grpc.scripted_ads import ScriptedAds

from authplane.core.feature_flags import FeatureFlags
from authplane.core.problems import Problem
from authplane.dataplane.runtime.xds.csds_service import (
    SERVICE,
    AuthContext,
    ThreadedClients,
    aio_csds_service,
    csds_service,
    local_or_certified,
)
from authplane.dataplane.runtime.xds.xds_client import XdsClientThread
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, parse_bootstrap
from authplane.xds.client.watched_types import Decoded, Invalid, ResourceType, Source
from authplane.xds.server.served_types import TypeUrl

URL = TypeUrl.LISTENER.value


def decode(body: bytes, _: Source) -> Decoded[str] | Invalid:
    message = Listener.FromString(body)
    if message.stat_prefix:
        return Invalid(name=message.name, problems=(Problem(("stat_prefix",), "Bad", "is bad"),))
    return Decoded(name=message.name, value=message.name)


KIND = ResourceType(type_url=URL, decode=decode, full_set=True)


def bootstrap(target: str) -> Bootstrap:
    server = {"server_uri": target, "channel_creds": [{"type": "insecure"}]}
    made = parse_bootstrap(json.dumps({"xds_servers": [server], "node": {"id": "node"}}).encode(), FeatureFlags())
    assert isinstance(made, Bootstrap)
    return made


def standings(response: pb.ClientStatusResponse) -> list[tuple[str, str, str]]:
    return [
        (config.client_scope, each.name, admin_pb.ClientResourceStatus.Name(each.client_status))
        for config in response.config
        for each in config.generic_xds_configs
    ]


async def test_clients_of_both_kinds_tell_an_asynchronous_server_what_they_know() -> None:
    async with ScriptedAds().serve() as ads, xds_client(bootstrap(ads.target), [KIND]) as client:
        for name in ("good", "bad", "waiting"):
            client.watch(KIND, name, lambda _: None)
        call = await ads.next()
        await call.read()
        bodies = (Listener(name="good"), Listener(name="bad", stat_prefix="x"))
        await call.send(URL, *(body.SerializeToString() for body in bodies))
        await call.read()
        threaded = await asyncio.to_thread(XdsClientThread, bootstrap(ads.target), [KIND], scope="xds:///other")
        closed = await asyncio.to_thread(XdsClientThread, bootstrap(ads.target), [KIND], scope="closed")
        await asyncio.to_thread(closed.close)
        threaded.watch(KIND, "alone", lambda _: None)
        other = await ads.next()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((aio_csds_service(lambda: [client, threaded, closed]),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method: Any = channel.unary_unary(
                f"/{SERVICE}/FetchClientStatus", response_deserializer=pb.ClientStatusResponse.FromString
            )
            want = [
                ("#server", "bad", "NACKED"),
                ("#server", "good", "ACKED"),
                ("#server", "waiting", "REQUESTED"),
                ("xds:///other", "alone", "REQUESTED"),
            ]

            async def told() -> bool:
                return standings(await method(b"", timeout=5)) == want

            await eventually(told)
            (refused,) = [each for each in (await method(b"")).config[0].generic_xds_configs if each.name == "bad"]
            assert "stat_prefix: is bad [Bad]" in refused.error_state.details
            stream: Any = channel.stream_stream(
                f"/{SERVICE}/StreamClientStatus", response_deserializer=pb.ClientStatusResponse.FromString
            )()
            for _ in range(2):
                await stream.write(b"")
                assert standings(await stream.read()) == want
            await stream.done_writing()
            assert await stream.code() is grpc.StatusCode.OK
        await server.stop(None)
        await asyncio.to_thread(threaded.close)
        for each in (call, other):
            each.end()


@contextmanager
def serving(clients: ThreadedClients, **more: Any) -> Iterator[grpc.Channel]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((csds_service(clients, **more),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()


def test_a_synchronous_server_tells_the_same() -> None:
    client = XdsClientThread(bootstrap("127.0.0.1:1"), [KIND])
    with client, serving(lambda: [client]) as channel:
        client.watch(KIND, "a", lambda _: None)
        method: Any = channel.unary_unary(f"/{SERVICE}/FetchClientStatus")
        response = pb.ClientStatusResponse.FromString(method(b"", timeout=5))
        assert standings(response) == [("#server", "a", "REQUESTED")]
        stream: Any = channel.stream_stream(f"/{SERVICE}/StreamClientStatus")
        responses = [pb.ClientStatusResponse.FromString(each) for each in stream(iter([b"", b""]), timeout=5)]
        assert [standings(each) for each in responses] == [[("#server", "a", "REQUESTED")]] * 2


MATCHING = pb.ClientStatusRequest()
MATCHING.node_matchers.add()
REFUSALS = {
    "not for this peer": (b"", False, grpc.StatusCode.PERMISSION_DENIED),
    "no request": (b"\xff", True, grpc.StatusCode.INVALID_ARGUMENT),
    "about other nodes": (MATCHING.SerializeToString(), True, grpc.StatusCode.INVALID_ARGUMENT),
}


@pytest.mark.requirement("X12")
@pytest.mark.parametrize(("body", "permitted", "want"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_what_gets_no_answer(body: bytes, permitted: bool, want: grpc.StatusCode) -> None:
    def ask() -> grpc.StatusCode:
        with serving(list, permitted=lambda *_: permitted) as channel:
            method: Any = channel.unary_unary(f"/{SERVICE}/FetchClientStatus")
            with pytest.raises(grpc.RpcError) as failed:
                method(body, timeout=5)
            code: grpc.StatusCode = failed.value.code()
            return code

    assert await asyncio.to_thread(ask) is want
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((aio_csds_service(list, permitted=lambda *_: permitted),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: Any = channel.unary_unary(f"/{SERVICE}/FetchClientStatus")
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await method(body, timeout=5)
    assert failed.value.code() is want
    await server.stop(None)


PEERS: dict[str, tuple[str, AuthContext, bool]] = {
    "this machine": ("ipv4:127.0.0.1:5", {}, True),
    "this machine, in the newer form": ("ipv6:%5B::1%5D:5", {}, True),
    "a socket of this machine": ("unix:", {}, True),
    "another machine": ("ipv4:10.0.0.1:5", {}, False),
    "another machine, in the newer form": ("ipv6:%5B2001:db8::1%5D:5", {}, False),
    "another machine with a certificate": ("ipv4:10.0.0.1:5", {"x509_pem_cert": [b"x"]}, True),
    "another machine over TLS": ("ipv4:10.0.0.1:5", {"transport_security_type": [b"ssl"]}, False),
    "nobody knows": ("", {}, False),
}


@pytest.mark.requirement("X12")
@pytest.mark.parametrize(("peer", "identity", "want"), PEERS.values(), ids=PEERS.keys())
def test_local_or_certified(peer: str, identity: AuthContext, want: bool) -> None:
    assert local_or_certified(peer, identity) is want
