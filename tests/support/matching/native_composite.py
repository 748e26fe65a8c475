"""What grpcio's own composite filter makes of trees: it runs as a process of its own against a scripted server.

Its channel has one Listener whose routes have a tree each; calls choose the route by a header. Every action aborts with
a status of its own, so that the status of a call tells which branch was taken.
"""

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.fault.v3 import fault_pb2
from google.protobuf import wrappers_pb2
from tests.dataplane.routing.test_oracle_routing import answering, serve
from tests.support.dataplane.cluster_messages import assignment, eds_cluster, lb_endpoint, locality
from tests.support.dataplane.filter_messages import http_filter, packed, router
from tests.support.dataplane.listener_messages import api_listener, manager
from tests.support.dataplane.route_messages import host, route_config, to_cluster
from tests.support.grpc.native_client import ScriptedAds
from tests.support.matching.trees import Request
from xds.type.matcher.v3 import matcher_pb2

from authplane.grpc.matching import composite, composite_override, execute, first_match, header, skip, when

GUARD: Final = {"GRPC_EXPERIMENTAL_XDS_COMPOSITE_FILTER": "true"}
CODES: Final = (1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16)
"""Those of actions: 4 and 14 are what a call ends with that takes too long, or that leads nowhere."""
NO_MATCH: Final = (14, "no match found in composite filter")
TREE: Final = "x-tree"
AUTHORITY: Final = "service"

_CHILD: Final = """
import json, os, sys
import grpc
sent = json.loads(sys.stdin.readline())
channel = grpc.insecure_channel("xds:///service")
for path, metadata in sent:
    try:
        channel.unary_unary(path)(b"", metadata=[tuple(each) for each in metadata], timeout=20, wait_for_ready=True)
        answer = [0, ""]
    except grpc.RpcError as error:
        answer = [error.code().value[0], error.details()]
    print(json.dumps(answer), flush=True)
os._exit(0)
"""


class Sent(NamedTuple):
    """A call for a tree."""

    tree: int
    request: Request


def code_of(action: str) -> int:
    """Return the status that stands for an action."""
    return CODES[int(action) % len(CODES)]


def aborting(message: Any) -> matcher_pb2.Matcher:
    """Return the tree with actions that abort, each with its status."""
    made = matcher_pb2.Matcher()
    made.CopyFrom(message)
    for outcome in outcomes(made):
        name = wrappers_pb2.StringValue.FromString(outcome.action.typed_config.value).value
        fault = fault_pb2.HTTPFault()
        fault.abort.grpc_status = code_of(name)
        fault.abort.percentage.numerator = 100
        outcome.action.typed_config.Pack(execute(fault))
    return made


def outcomes(message: Any) -> list[Any]:
    """Return everything in a tree that has an action."""
    tree = message.matcher_tree
    found = [each.on_match for each in message.matcher_list.matchers]
    found += [*tree.exact_match_map.map.values(), *tree.prefix_match_map.map.values()]
    if message.HasField("on_no_match"):
        found.append(message.on_no_match)
    inner = [each for outcome in found if outcome.HasField("matcher") for each in outcomes(outcome.matcher)]
    return [outcome for outcome in found if outcome.HasField("action")] + inner


async def native_branches(trees: list[matcher_pb2.Matcher], sent: list[Sent]) -> list[tuple[int, str]]:
    """Send calls over grpcio's own channel; return status and message of each."""
    routes = [to_cluster("backend", typed_per_filter_config=_override(tree)) for tree in trees]
    for number, route in enumerate(routes):
        match = route_components_pb2.HeaderMatcher(name=TREE)
        match.string_match.exact = str(number)
        route.match.headers.append(match)
    otherwise = composite(first_match(when(header(":path").is_there(), then=skip())))
    held = manager(http_filter("composite", otherwise), router(), route_config=route_config(host(*routes)))
    async with AsyncExitStack() as stack:
        backend = await serve(stack, answering("backend"))
        resources = {
            ("envoy.config.listener.v3.Listener", AUTHORITY): api_listener(held, AUTHORITY).SerializeToString(),
            ("envoy.config.cluster.v3.Cluster", "backend"): eds_cluster("backend").SerializeToString(),
            ("envoy.config.endpoint.v3.ClusterLoadAssignment", "backend"): assignment(
                locality(lb_endpoint("127.0.0.1", backend)), name="backend"
            ).SerializeToString(),
        }
        ads = ScriptedAds(resources, together=True)
        port = await serve(stack, ads.handlers())
        servers = [{"server_uri": f"127.0.0.1:{port}", "channel_creds": [{"type": "insecure"}]}]
        bootstrap = json.dumps({"xds_servers": servers, "node": {"id": "oracle"}})
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _CHILD,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **GUARD, "GRPC_XDS_BOOTSTRAP_CONFIG": bootstrap, "GRPC_VERBOSITY": "NONE"},
        )  # fmt: skip
        orders = [(each.request.path, [*each.request.metadata, (TREE, str(each.tree))]) for each in sent]
        async with asyncio.timeout(120):
            output, _ = await child.communicate(json.dumps(orders).encode() + b"\n")
        assert not any(ads.verdicts.values()), ads.verdicts
    return [(code, text) for code, text in map(json.loads, output.splitlines())]


def _override(tree: matcher_pb2.Matcher) -> dict[str, Any]:
    return {"composite": packed(composite_override(tree))}
