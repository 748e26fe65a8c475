"""Calls go where grpcio's own xDS channel sends them: the same routes, the same calls, real backends."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import grpc.aio
import pytest
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from envoy.type.v3 import range_pb2
from google.protobuf import wrappers_pb2
from tests.support.dataplane.cluster_messages import assignment, eds_cluster, lb_endpoint, locality
from tests.support.dataplane.listener_messages import api_listener, manager
from tests.support.dataplane.plain_filters import CLIENT
from tests.support.dataplane.route_messages import here, host, route, route_config, to_cluster, weighted
from tests.support.grpc.native_client import ScriptedAds

from authplane.dataplane.config.listeners import ApiListener
from authplane.dataplane.config.read.decode_resource import decode_listener
from authplane.dataplane.config.routes import RouteConfiguration
from authplane.dataplane.filters.calls import Call, Metadata, Side
from authplane.dataplane.filters.registry import State
from authplane.dataplane.routing.call_routing import build_route_table

Sent: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""The path and the metadata of a call."""

CLUSTERS: Final = ("a", "b", "c")
_CHILD: Final = """
import json, sys
import grpc
channel = grpc.insecure_channel("xds:///service")
for path, metadata in json.loads(sys.stdin.readline()):
    try:
        answer = channel.unary_unary(path)(b"", metadata=metadata, timeout=10, wait_for_ready=False).decode()
    except grpc.RpcError as error:
        answer = error.code().name
    print(json.dumps(answer), flush=True)
import os
os._exit(0)
"""


def header(**kwargs: Any) -> pb.Route:
    matcher = pb.HeaderMatcher(**{"name": "x", **kwargs})
    return to_cluster("a", match=pb.RouteMatch(prefix="", headers=[matcher]))


def path(**kwargs: Any) -> pb.Route:
    return to_cluster("a", match=pb.RouteMatch(**kwargs))


INSENSITIVE: Final = wrappers_pb2.BoolValue(value=False)
PATHS: Final[Sequence[Sent]] = [(each, ()) for each in ("/s.A/M", "/s.A/N", "/S.a/m", "/s.AB/M", "/t.A/M")]
VALUES: Final[Sequence[Sent]] = [
    ("/s.A/M", tuple(("x", each) for each in values))
    for values in ((), ("a",), ("A",), ("ab",), ("a", "b"), ("a,b",), ("5",), ("-5",), ("10",), ("5x",), ("",))
]

TABLE: Final[dict[str, tuple[Sequence[pb.Route], Sequence[Sent]]]] = {
    "a path": ([path(path="/s.A/M"), to_cluster("b")], PATHS),
    "a path of any case": ([path(path="/s.A/M", case_sensitive=INSENSITIVE), to_cluster("b")], PATHS),
    "a prefix": ([path(prefix="/s.A"), to_cluster("b")], PATHS),
    "a prefix of any case": ([path(prefix="/s.A/", case_sensitive=INSENSITIVE), to_cluster("b")], PATHS),
    "an expression": ([path(safe_regex=regex_pb2.RegexMatcher(regex="/s[.]A.*/M")), to_cluster("b")], PATHS),
    "an expression that matches a part": (
        [path(safe_regex=regex_pb2.RegexMatcher(regex="/s")), to_cluster("b")],
        PATHS,
    ),
    "an expression, for which case is not asked": (
        [path(safe_regex=regex_pb2.RegexMatcher(regex="/s.A/M"), case_sensitive=INSENSITIVE), to_cluster("b")],
        PATHS,
    ),
    "the first that matches": ([to_cluster("c", "/s.A/N"), path(prefix="/s"), to_cluster("b", "/s")], PATHS),
    "a route with a query": (
        [path(prefix="", query_parameters=[pb.QueryParameterMatcher(name="x")]), to_cluster("b")],
        PATHS,
    ),
    "a route that is skipped": ([route(route=pb.RouteAction(cluster_header="x")), to_cluster("b")], PATHS),
    "a route that is not for clients": ([here("/s.A"), to_cluster("b")], PATHS),
    "a route of nothing": ([route("/s.A"), to_cluster("b")], PATHS),
    "weights of which one counts": ([weighted(("c", 0), ("a", 1))], PATHS),
    "an exact header": ([header(exact_match="a"), to_cluster("b")], VALUES),
    "exactly nothing": ([header(exact_match=""), to_cluster("b")], VALUES),
    "two values": ([header(exact_match="a,b"), to_cluster("b")], VALUES),
    "not an exact header": ([header(exact_match="a", invert_match=True), to_cluster("b")], VALUES),
    "a prefix of a header": ([header(prefix_match="a"), to_cluster("b")], VALUES),
    "a suffix of a header": ([header(suffix_match="b"), to_cluster("b")], VALUES),
    "a part of a header": ([header(contains_match=","), to_cluster("b")], VALUES),
    "an expression for a header": (
        [header(safe_regex_match=regex_pb2.RegexMatcher(regex="[0-9]+")), to_cluster("b")],
        VALUES,
    ),
    "a range": ([header(range_match=range_pb2.Int64Range(start=-5, end=10)), to_cluster("b")], VALUES),
    "not a range": (
        [header(range_match=range_pb2.Int64Range(start=-5, end=10), invert_match=True), to_cluster("b")],
        VALUES,
    ),
    "a header that is there": ([header(present_match=True), to_cluster("b")], VALUES),
    "a header that is not there": ([header(present_match=False), to_cluster("b")], VALUES),
    "not a header that is there": ([header(present_match=True, invert_match=True), to_cluster("b")], VALUES),
    "a header of any case": (
        [header(string_match=string_pb2.StringMatcher(exact="A", ignore_case=True)), to_cluster("b")],
        VALUES,
    ),
    "the content type": ([header(name="content-type", exact_match="application/grpc"), to_cluster("b")], PATHS),
    "a binary header": ([header(name="x-bin", present_match=True), to_cluster("b")], PATHS),
}


async def native(routes: Sequence[pb.Route], sent: Sequence[Sent]) -> list[str]:
    """Send calls over grpcio's own channel; each backend answers with the name of its cluster."""
    async with AsyncExitStack() as stack:
        ports = {name: await serve(stack, answering(name)) for name in CLUSTERS}
        found = [
            api_listener(manager(route_config=route_config(host(*routes))), "service"),
            *(eds_cluster(name) for name in CLUSTERS),
            *(assignment(locality(lb_endpoint("127.0.0.1", ports[name])), name=name) for name in CLUSTERS),
        ]
        resources = {
            (each.DESCRIPTOR.full_name, getattr(each, "cluster_name", "") or getattr(each, "name", "")): (
                each.SerializeToString()
            )
            for each in found
        }
        port = await serve(stack, ScriptedAds(resources, together=True).handlers())
        servers = [{"server_uri": f"127.0.0.1:{port}", "channel_creds": [{"type": "insecure"}]}]
        bootstrap = json.dumps({"xds_servers": servers, "node": {"id": "oracle"}})
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CHILD,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "GRPC_XDS_BOOTSTRAP_CONFIG": bootstrap, "GRPC_VERBOSITY": "NONE"},
        )  # fmt: skip
        async with asyncio.timeout(20):
            output, _ = await child.communicate(json.dumps(sent).encode() + b"\n")
        return [json.loads(line) for line in output.splitlines()]


async def serve(stack: AsyncExitStack, handlers: grpc.GenericRpcHandler) -> int:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(server.stop, None)
    return port


def answering(name: str) -> grpc.GenericRpcHandler:
    async def answer(_request: bytes, _context: Any) -> bytes:
        return name.encode()

    class Handlers(grpc.GenericRpcHandler):
        def service(self, _: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
            return grpc.unary_unary_rpc_method_handler(answer)

    return Handlers()


def ours(routes: Sequence[pb.Route], sent: Sequence[Sent]) -> list[str]:
    message = api_listener(manager(route_config=route_config(host(*routes))), "service")
    listener = decode_listener(message.SerializeToString(), CLIENT)
    assert isinstance(listener, ApiListener)
    assert isinstance(listener.manager.routes, RouteConfiguration)
    state = State(random=lambda: 0.0, monotonic=lambda: 0.0)
    table = build_route_table(listener.manager, listener.manager.routes, Side.CLIENT, state)
    found = [table.route(call(path, metadata), lambda: 0.0) for path, metadata in sent]
    return [each.cluster if each.stop is None else each.stop.code.name for each in found]


def call(path: str, metadata: Metadata) -> Call:
    return Call(
        side=Side.CLIENT,
        path=path,
        authority="service",
        metadata=metadata,
        started=datetime(2026, 1, 1, tzinfo=UTC),
        remaining=None,
        connection=None,
    )


@pytest.mark.real
@pytest.mark.requirement("RT-2")
@pytest.mark.requirement("RT-3")
@pytest.mark.parametrize("name", TABLE)
async def test_calls_go_where_grpcio_sends_them(name: str) -> None:
    routes, sent = TABLE[name]
    assert ours(routes, sent) == await native(routes, sent)
