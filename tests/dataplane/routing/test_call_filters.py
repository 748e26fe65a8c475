"""What the calls of a server are judged by: chains first, then routes."""

from dataclasses import replace
from typing import Any, Final

import pytest
from envoy.config.listener.v3 import listener_components_pb2
from tests.support.dataplane.driven_calls import CALL, Watched, Wire
from tests.support.dataplane.listener_messages import chain, cidr, matching, rds, server_listener, serving
from tests.support.dataplane.plain_filters import SERVER
from tests.support.dataplane.route_messages import host, route, route_config

from authplane.dataplane.config.listeners import ServerListener
from authplane.dataplane.config.read.decode_resource import decode_listener
from authplane.dataplane.filters.calls import Call, Code, Endpoint, Stop
from authplane.dataplane.filters.rbac.filter import RbacFilter
from authplane.dataplane.routing.call_filters import FixedRules, ServerRules
from authplane.dataplane.routing.call_routing import Routed
from authplane.dataplane.routing.resolver import Failed, ServerConfiguration

OPEN: Final = Routed()
SHUT: Final = Stop(code=Code.UNAVAILABLE, message="the route has no non_forwarding_action")
NO_CHAIN: Final = Stop(code=Code.UNAVAILABLE, message="no filter chain matches this connection")
UNKNOWN: Final = Stop(code=Code.UNAVAILABLE, message="the connection is unknown")


def shut(**match: Any) -> listener_components_pb2.FilterChain:
    """Return a chain whose calls end, unlike those of others."""
    return chain(serving(route_config=route_config(host(route()))), filter_chain_match=matching(**match))


def rules(*chains: listener_components_pb2.FilterChain, missing: str = "nobody has it", **more: Any) -> ServerRules:
    listener = decode_listener(server_listener(*chains, **more).SerializeToString(), SERVER)
    assert isinstance(listener, ServerListener), listener
    return ServerRules.of(ServerConfiguration(listener=listener, routes={"r": Failed(missing)}), Watched().state)


def call(local: str = "10.9.9.9", remote: str = "10.1.2.3") -> Call:
    return replace(
        CALL,
        connection=Wire(local=Endpoint(address=local, port=50051), remote=Endpoint(address=remote, port=4711)),
    )


@pytest.mark.requirement("SL-4")
def test_the_chain_of_the_connection_decides_and_without_one_calls_fail() -> None:
    made = rules(shut(prefix_ranges=[cidr("10.9.0.0", 16)]), chain(filter_chain_match=matching(source_ports=[4711])))
    assert made.route(call()).stop == SHUT
    assert made.route(call("10.8.8.8")) == OPEN
    assert made.route(replace(CALL, connection=None)).stop == UNKNOWN
    alone = rules(shut(prefix_ranges=[cidr("10.9.0.0", 16)]))
    assert alone.route(call("10.8.8.8")).stop == NO_CHAIN


@pytest.mark.requirement("SL-4")
@pytest.mark.parametrize("match", [{"prefix_ranges": [cidr("10.9.0.0", 16)]}, {"source_type": "SAME_IP_OR_LOOPBACK"}])
@pytest.mark.parametrize("local", ["", "0.0.0.0", "::"])
def test_a_call_on_an_address_of_ours_that_is_not_known_does_not_pass_by_another_chain(
    match: dict[str, Any], local: str
) -> None:
    made = rules(shut(**match), default_filter_chain=chain())
    assert made.route(call(local)).stop == UNKNOWN
    assert made.route(call("10.8.8.8")) == OPEN


def test_our_address_does_not_matter_where_no_chain_asks_for_it() -> None:
    made = rules(shut(source_prefix_ranges=[cidr("10.1.0.0", 16)]), default_filter_chain=chain())
    assert made.route(call("", "10.1.2.3")).stop == SHUT
    assert made.route(call("", "10.2.2.3")) == OPEN


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (rules(chain()), True),
        (rules(chain(filter_chain_match=matching(transport_protocol="raw_buffer"))), True),
        (rules(shut()), False),
        (rules(chain(filter_chain_match=matching(source_ports=[1]))), False),
        (rules(chain(), shut(source_ports=[1])), False),
        (rules(chain(serving(rds=rds("r")))), False),
    ],
)
def test_calls_skip_the_gate_only_if_all_of_them_pass(made: ServerRules, want: bool) -> None:
    assert made.passes is want


@pytest.mark.requirement("SL-5")
def test_calls_fail_where_routes_are_missing() -> None:
    made = rules(chain(serving(rds=rds("r"))))
    assert made.route(call()).stop == Stop(code=Code.UNAVAILABLE, message="no routes: nobody has it")


def test_calls_without_routes_are_told_only_the_beginning_of_what_is_wrong_with_them() -> None:
    made = rules(chain(serving(rds=rds("r"))), missing="x" * 5000)
    stop = made.route(call()).stop
    assert stop is not None
    assert stop.message.startswith("no routes: xxx")
    assert len(stop.message) < 620


def test_filters_of_a_program_judge_every_call() -> None:
    made = FixedRules.of([RbacFilter()], Watched().state)
    assert (made.route(CALL).filters, made.passes) == ((RbacFilter(),), False)
    assert FixedRules.of([], Watched().state).passes
