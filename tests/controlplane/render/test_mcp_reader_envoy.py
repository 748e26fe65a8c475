"""A message that the reader inside Envoy does not mark is called out, also where the reader fails."""

from collections.abc import Callable
from typing import Final

import httpx2
import pytest
from envoy.config.bootstrap.v3 import bootstrap_pb2
from envoy.extensions.filters.http.lua.v3 import lua_pb2
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

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.controlplane.render.native.native_filters import READER
from authplane.controlplane.render.rendered import render_graph
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy

SETTINGS: Final = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {gateway: {address: 127.0.0.1}, policyServer: {address: "unix:/nowhere.sock"}}
"""
HEADERS: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def leave(source: str) -> str:
    """Change nothing."""
    return source


def fail(source: str) -> str:
    """Let the script fail while it reads."""
    return source.replace(
        "local function read_message(body, front)", "local function read_message(body, front)\n  error()"
    )


def overflow(source: str) -> str:
    """Let the script call itself without end."""
    return source.replace(
        "local function subject_of(method)",
        "local function subject_of(method)\n"
        "  method = (function() local function f() return 1 + f() end return f() end)()",
    )


def read_nothing(_: str) -> str:
    """Let the script do nothing."""
    return "function envoy_on_request(handle) end"


CASES: Final[dict[str, tuple[Callable[[str], str], dict[str, int]]]] = {
    # Nobody is behind the gateway, and no policy server answers.
    "as rendered": (leave, {"add": 503, "wipe": 403}),
    "the script does nothing": (read_nothing, {"add": 503, "wipe": 503}),
    "the script fails": (fail, {"add": 503, "wipe": 503}),
    "the script overflows": (overflow, {"add": 503, "wipe": 503}),
}


def change_reader(bootstrap: bootstrap_pb2.Bootstrap, change: Callable[[str], str]) -> None:
    """Change the script in a configuration."""
    for listener in bootstrap.static_resources.listeners:
        for chain in listener.filter_chains:
            manager = hcm_pb.HttpConnectionManager()
            typed: Any = chain.filters[0].typed_config
            assert typed.Unpack(manager)
            for each in manager.http_filters:
                told = lua_pb2.Lua()
                if each.name == READER and each.typed_config.Unpack(told):
                    source = told.default_source_code
                    source.inline_string = change(source.inline_string)
                    each.typed_config.Pack(told)
            typed.Pack(manager)


@pytest.mark.real
@pytest.mark.parametrize("version", VERSIONS, ids=str)
@pytest.mark.parametrize(("change", "want"), CASES.values(), ids=CASES.keys())
async def test_a_message_without_a_mark_is_called_out(
    version: Version, change: Callable[[str], str], want: dict[str, int]
) -> None:
    plain = free_port()
    documents = [
        SETTINGS, gateway(plain, free_port()), tls_secret("tls", server("localhost")), ca_secret("ca"),
        backend("shop"), service("shop", free_port()), route("shop", {"shop": 1}),
        policy("[{authorization: [{type: InlineTools, tools: [add]}]}]"),
    ]  # fmt: skip
    bootstrap = static_bootstrap(render_graph(World(documents).generation.built.graph, version.release))
    change_reader(bootstrap, change)
    async with run_envoy(json_text(bootstrap), sink=_ignore, settings=version.settings()) as envoy:
        await envoy.ready(limit=START_LIMIT)
        found = {}
        for tool in want:
            async with httpx2.AsyncClient(timeout=10) as http:
                url = f"http://127.0.0.1:{plain}/shop"
                found[tool] = (await http.post(url, content=call_body(tool), headers=HEADERS)).status_code
    assert found == want


async def _ignore(_: Line) -> None: ...
