"""Which filter chain serves a connection."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network
from typing import Any, Final, NamedTuple

import pytest
from envoy.config.listener.v3 import listener_components_pb2
from google.protobuf import wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.listener_messages import chain, cidr, matching, server_listener
from tests.support.dataplane.plain_filters import SERVER

from authplane.dataplane.config.listeners import ChainMatch, FilterChain, ServerListener, SourceType
from authplane.dataplane.config.read.decode_resource import decode_listener
from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.filters.networks import Network
from authplane.dataplane.routing.choose_chain import pick_chain

LOOPBACK: Final = listener_components_pb2.FilterChainMatch.SAME_IP_OR_LOOPBACK
EXTERNAL: Final = listener_components_pb2.FilterChainMatch.EXTERNAL


def listener(default: bool, **matches: Any) -> ServerListener:
    chains = [chain(name=name, filter_chain_match=match) for name, match in matches.items()]
    extra = {"default_filter_chain": chain(name="default")} if default else {}
    got = decode_listener(server_listener(*chains, **extra).SerializeToString(), SERVER)
    assert isinstance(got, ServerListener), got
    return got


class Case(NamedTuple):
    chains: dict[str, Any]
    want: str | None
    local: str = "10.0.0.1"
    remote: str = "10.9.9.9"
    port: int = 5000
    default: bool = True


def ranges(*found: tuple[str, int], **kwargs: Any) -> Any:
    return matching(prefix_ranges=[cidr(*each) for each in found], **kwargs)


def sources(*found: tuple[str, int], **kwargs: Any) -> Any:
    return matching(source_prefix_ranges=[cidr(*each) for each in found], **kwargs)


CASES: Final = {
    "a chain that asks for nothing": Case({"all": matching()}, "all"),
    "none, and so the default": Case({"other": ranges(("11.0.0.0", 8))}, "default"),
    "none, and no default": Case({"other": ranges(("11.0.0.0", 8))}, None, default=False),
    "the closest destination": Case(
        {"wide": ranges(("10.0.0.0", 8)), "close": ranges(("10.0.0.0", 24)), "all": matching()}, "close"
    ),
    "a destination of all addresses is closer than none": Case(
        {"none": matching(), "all": ranges(("0.0.0.0", 0))}, "all"
    ),
    "destinations of another version do not count": Case({"six": ranges(("::", 0)), "none": matching()}, "none"),
    "an address that is mapped counts as version 4": Case(
        {"six": ranges(("::", 0)), "four": ranges(("10.0.0.0", 8))}, "four", local="::ffff:10.0.0.1"
    ),
    "the closest of several ranges of a chain": Case(
        {"one": ranges(("10.0.0.0", 8), ("10.0.0.1", 32)), "other": ranges(("10.0.0.0", 24))}, "one"
    ),
    "a port never matches": Case(
        {"port": matching(destination_port=wrappers_pb2.UInt32Value(value=8080)), "all": matching()}, "all"
    ),
    "a server name never matches": Case({"name": matching(server_names=["a"])}, "default"),
    "a protocol never matches": Case({"h2": matching(application_protocols=["h2"])}, "default"),
    "TLS never matches": Case({"tls": matching(transport_protocol="tls")}, "default"),
    "a raw buffer matches": Case({"raw": matching(transport_protocol="raw_buffer")}, "raw"),
    "a raw buffer is closer than nothing": Case(
        {"all": matching(), "raw": matching(transport_protocol="raw_buffer")}, "raw"
    ),
    "a raw buffer counts before the source": Case(
        {"source": sources(("10.9.9.9", 32)), "raw": matching(transport_protocol="raw_buffer")}, "raw"
    ),
    "a raw buffer of a far source hides the rest": Case(
        {"all": matching(), "raw": sources(("11.0.0.0", 8), transport_protocol="raw_buffer")}, "default"
    ),
    "from outside": Case({"near": matching(source_type=LOOPBACK), "far": matching(source_type=EXTERNAL)}, "far"),
    "from this machine": Case(
        {"near": matching(source_type=LOOPBACK), "far": matching(source_type=EXTERNAL)}, "near", remote="127.0.0.1"
    ),
    "from the same address": Case(
        {"near": matching(source_type=LOOPBACK), "far": matching(source_type=EXTERNAL)}, "near", remote="10.0.0.1"
    ),
    "from a unix socket": Case(
        {"near": matching(source_type=LOOPBACK), "far": matching(source_type=EXTERNAL)}, "near", remote="", port=0
    ),
    "a type of source is closer than any": Case({"any": matching(), "far": matching(source_type=EXTERNAL)}, "far"),
    "the closest source": Case({"wide": sources(("10.0.0.0", 8)), "close": sources(("10.9.0.0", 16))}, "close"),
    "a range of IPv4 as a part of IPv6": Case(
        {"all": matching(), "mapped": sources(("::ffff:10.9.0.0", 112))}, "mapped"
    ),
    "the closest destination counts before the source": Case(
        {
            "destination": ranges(("10.0.0.1", 32)),
            "source": matching(prefix_ranges=[cidr("10.0.0.0", 8)], source_prefix_ranges=[cidr("10.9.9.9", 32)]),
        },
        "destination",
    ),
    "what a destination has ruled out does not come back": Case(
        {
            "close": matching(prefix_ranges=[cidr("10.0.0.1", 32)], source_prefix_ranges=[cidr("11.0.0.0", 8)]),
            "all": matching(),
        },
        "default",
    ),
    "the port of the source": Case({"all": matching(), "port": matching(source_ports=[1, 5000])}, "port"),
    "another port of the source": Case({"all": matching(), "port": matching(source_ports=[1])}, "all"),
}


@pytest.mark.requirement("SL-4")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_most_specific_chain_serves(case: Case) -> None:
    got = pick_chain(
        listener(case.default, **case.chains),
        Endpoint(address=case.local, port=8080),
        Endpoint(address=case.remote, port=case.port),
    )
    assert (None if got is None else got.name) == case.want


NETWORKS: Final = [ip_network(each) for each in ("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/31", "10.0.0.1/32", "::/0")]
MATCHES: Final = st.builds(
    ChainMatch,
    destinations=st.lists(st.sampled_from(NETWORKS), max_size=2, unique=True).map(tuple),
    raw_buffer=st.booleans(),
    source_type=st.sampled_from(SourceType),
    sources=st.lists(st.sampled_from(NETWORKS), max_size=2, unique=True).map(tuple),
    source_ports=st.lists(st.sampled_from([1, 2]), max_size=2, unique=True).map(tuple),
)
ENDPOINTS: Final = st.builds(
    Endpoint,
    address=st.sampled_from(["10.0.0.0", "10.0.0.1", "10.7.7.7", "127.0.0.1", "::1", ""]),
    port=st.sampled_from([1, 2, 3]),
)


def step_by_step(matches: list[ChainMatch], local: Endpoint, remote: Endpoint) -> set[int]:
    """Choose as gRFC A36 tells it: score after score, and all but the best of each are out."""

    def inside(networks: tuple[Network, ...], address: str) -> int | None:
        if not networks:
            return -1
        return max((each.prefixlen for each in networks if address and ip_address(address) in each), default=None)

    near = remote.address in {"", "127.0.0.1", "::1", local.address}
    own_type = SourceType.SAME_IP_OR_LOOPBACK if near else SourceType.EXTERNAL
    scores: list[Callable[[ChainMatch], int | None]] = [
        lambda match: inside(match.destinations, local.address),
        lambda match: int(match.raw_buffer),
        lambda match: {own_type: 1, SourceType.ANY: 0}.get(match.source_type),
        lambda match: inside(match.sources, remote.address),
        lambda match: 0 if not match.source_ports else (1 if remote.port in match.source_ports else None),
    ]
    left = set(range(len(matches)))
    for score in scores:
        found = {index: score(matches[index]) for index in left}
        best = max((each for each in found.values() if each is not None), default=None)
        left = {index for index, each in found.items() if each is not None and each == best}
    return left


@pytest.mark.slow
@pytest.mark.requirement("SL-4")
@settings(deadline=None)
@given(st.lists(MATCHES, max_size=5), ENDPOINTS, ENDPOINTS)
def test_picking_agrees_with_the_rule_told_step_by_step(
    matches: list[ChainMatch], local: Endpoint, remote: Endpoint
) -> None:
    base = listener(default=False, all=matching())
    chains = tuple(
        FilterChain(name=str(index), match=match, manager=base.chains[0].manager) for index, match in enumerate(matches)
    )
    got = pick_chain(ServerListener(name="x", address=Endpoint(), chains=chains), local, remote)
    want = step_by_step(matches, local, remote)
    assert (got is None) == (not want)
    assert got is None or int(got.name) in want
