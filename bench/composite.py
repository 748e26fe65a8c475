"""Calls per second of a server whose composite filter looks each call up in a tree of three levels with an expression.

It is compared with the same server without the filter, and with one that has the filter which the tree chooses, and no
tree. Servers are on one core, the load is on another.
"""

from contextlib import AsyncExitStack
from typing import Final

from envoy.config.rbac.v3 import rbac_pb2 as rules_pb2
from envoy.config.route.v3.route_components_pb2 import HeaderMatcher
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import HttpFilter
from envoy.type.matcher.v3 import string_pb2
from google.protobuf.message import Message
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.xds_resources import http_filter

from authplane.grpc.matching import Tree, by_header, by_prefix, cel, composite, execute, first_match, header, skip, when
from bench.grpc_servers import Measured, load, served_process
from bench.h2load import cores
from bench.processes import seconds_used, started_here

_CALLS: Final = 2_000
_ROUNDS: Final = 7


async def main() -> None:
    """Load the servers in turn, a few times, and compare the best of each."""
    with cores() as core:
        if core is None:
            return
        with controlling() as control:
            for stack in ("aio", "threads"):
                best = await _best(stack, core, control)
                _compare(stack, "a tree that lets calls pass", best["tree"], "no filter", best["none"])
                _compare(stack, "a tree that chooses rbac", best["chosen"], "rbac alone", best["alone"])


def _variants() -> dict[str, tuple[HttpFilter, ...]]:
    return {
        "none": (),
        "tree": (http_filter("choice", composite(_tree(skip()))),),
        "alone": (http_filter("rbac", _rbac()),),
        "chosen": (http_filter("choice", composite(_tree(execute(_rbac())))),),
    }


def _tree(action: Message) -> Tree:
    """Return a tree that a call walks through to its third level, where an expression holds."""
    last = first_match(
        when(header("x-user").is_("bob"), then=skip()),
        when(cel("request.headers['authorization'].startsWith('Bearer ') && request.path != '/'"), then=action),
    )
    tenants = {f"tenant-{number}": skip() for number in range(10)}
    return by_header("x-tenant", tenants, otherwise=by_prefix(":path", {"/bench.": last, "/other.": skip()}))


def _rbac() -> rbac_pb2.RBAC:
    config = rbac_pb2.RBAC()
    config.rules.action = rules_pb2.RBAC.ALLOW
    policy = config.rules.policies["users"]
    policy.permissions.add().url_path.path.prefix = "/bench."
    policy.principals.add().header.CopyFrom(
        HeaderMatcher(name="x-user", string_match=string_pb2.StringMatcher(exact="ann"))
    )
    return config


async def _best(stack: str, core: int, control: Control) -> dict[str, Measured]:
    """Load all servers in each round: what else the machine does then falls on all of them."""
    variants = _variants()
    rounds: dict[str, list[Measured]] = {name: [] for name in variants}
    async with AsyncExitStack() as open_servers:
        resources: list[Message] = []
        ports, processes = {}, {}
        for name, filters in variants.items():
            before = started_here()
            server = served_process(stack, name, "", control, resources, *filters)
            ports[name] = await open_servers.enter_async_context(server)
            processes[name] = started_here() - before
        for port in ports.values():
            await load(port, core, 500)
        for name in list(variants) * _ROUNDS:
            used = seconds_used(processes[name])
            rate = await load(ports[name], core, _CALLS)
            rounds[name].append(Measured(rate, (seconds_used(processes[name]) - used) / _CALLS))
    return {
        name: Measured(max(each.rate for each in all_), min(each.cost for each in all_))
        for name, all_ in rounds.items()
    }


def _compare(stack: str, name: str, one: Measured, other: str, two: Measured) -> None:
    print(
        f"  {stack}: {name} {one.rate:.0f} calls/s, {one.rate / two.rate:.2f} times the {two.rate:.0f} of {other} "
        f"(limit 0.9); by processor time, {one.cost * 1e6:.0f} and {two.cost * 1e6:.0f} µs a call, "
        f"{two.cost / one.cost:.2f} times",
        flush=True,
    )
