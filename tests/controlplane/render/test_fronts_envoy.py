"""What the filter before those of policies does not find, or fails to look for, the policy server is asked about."""

from collections.abc import Callable
from typing import Final

import httpx2
import pytest
from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.config.rbac.v3 import rbac_pb2 as pb
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from google.protobuf.any_pb2 import Any
from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import START_LIMIT
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend, gateway, policy, route
from tests.support.mcp.mcp_checks import call_body
from tests.support.ports import free_port
from tests.support.resources.contour_documents import World

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.wire import render_condition
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.render.native.native_filters import FRONT
from authplane.controlplane.render.rendered import render_graph
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy

SETTINGS: Final = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {gateway: {address: 127.0.0.1}, policyServer: {address: "unix:/nowhere.sock"}, bodyInspection: Native}
"""
HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def leave(_: route_pb2.RouteConfiguration) -> None:
    """Change nothing."""


def forget(table: route_pb2.RouteConfiguration) -> None:
    """Let the table say nothing of the filter."""
    del table.typed_per_filter_config[FRONT]


def fail(table: route_pb2.RouteConfiguration) -> None:
    """Let everything that is looked for be something that cannot be told."""
    told = rbac_pb2.RBACPerRoute()
    assert table.typed_per_filter_config[FRONT].Unpack(told)
    for each in told.rbac.shadow_rules.policies.values():
        each.CopyFrom(
            pb.Policy(
                permissions=[pb.Permission(any=True)],
                principals=[pb.Principal(any=True)],
                condition=render_condition(condition_nodes.equal(condition_nodes.MISSING, "a")),
            )
        )
    table.typed_per_filter_config[FRONT].Pack(told)


CASES: Final[dict[str, tuple[Callable[[route_pb2.RouteConfiguration], None], dict[str, int]]]] = {
    # Nobody is behind the gateway, and nobody is there to be asked.
    "as rendered": (leave, {"add": 503, "wipe": 403}),
    "nothing is looked for": (forget, {"add": 503, "wipe": 503}),
    "looking fails": (fail, {"add": 503, "wipe": 503}),
}


def tables(bootstrap: bootstrap_pb2.Bootstrap, change: Callable[[route_pb2.RouteConfiguration], None]) -> None:
    """Change every table in a configuration."""
    for listener in bootstrap.static_resources.listeners:
        for chain in listener.filter_chains:
            manager = hcm_pb.HttpConnectionManager()
            typed: Any = chain.filters[0].typed_config
            assert typed.Unpack(manager)
            change(manager.route_config)
            typed.Pack(manager)


@pytest.mark.real
@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize(("change", "want"), CASES.values(), ids=CASES.keys())
async def test_without_what_the_first_filter_finds_envoy_denies_and_allows_nothing(
    version: Version, change: Callable[[route_pb2.RouteConfiguration], None], want: dict[str, int]
) -> None:
    plain = free_port()
    documents = [
        SETTINGS, gateway(plain, free_port()), tls_secret("tls", server("localhost")), ca_secret("ca"),
        backend("shop"), service("shop", free_port()), route("shop", {"shop": 1}),
        policy("[{authorization: [{type: InlineTools, tools: [add]}]}]"),
    ]  # fmt: skip
    bootstrap = static_bootstrap(render_graph(World(documents).generation.built.graph, version.release))
    tables(bootstrap, change)
    async with run_envoy(json_text(bootstrap), sink=_ignore, settings=version.settings()) as envoy:
        await envoy.ready(limit=START_LIMIT)
        found = {}
        for tool in want:
            async with httpx2.AsyncClient(timeout=10) as http:
                url = f"http://127.0.0.1:{plain}/shop"
                found[tool] = (await http.post(url, content=call_body(tool), headers=HEADERS)).status_code
    assert found == want


async def _ignore(_: Line) -> None: ...
