"""Which filter chain of a server serves a connection (gRFC A36)."""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import TypeAlias

from authplane.core.addresses import parse_ip_address
from authplane.core.values import dataclass
from authplane.dataplane.config.listeners import ChainMatch, FilterChain, ServerListener, SourceType
from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.filters.networks import Network

Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class _Candidate:
    match: ChainMatch
    chain: FilterChain


def pick_chain(listener: ServerListener, local: Endpoint, remote: Endpoint) -> FilterChain | None:
    """Return the chain that matches a connection most specifically; None means that the connection is closed.

    Criteria count one after the other, and what one of them has ruled out does not come back: a chain for the closest
    destination is taken or, if its sources do not match, the default.
    """
    own, peer = _address(local), _address(remote)
    left = [_Candidate(chain.match, chain) for chain in listener.chains if chain.match is not None]
    left = _closest(left, own, lambda match: match.destinations)
    left = [each for each in left if each.match.raw_buffer] or left
    left = _of_source_type(left, _source_type(own, peer))
    left = _closest(left, peer, lambda match: match.sources)
    left = _of_port(left, remote.port)
    return left[0].chain if left else listener.default_chain


def _closest(
    candidates: list[_Candidate], address: Address | None, networks: Callable[[ChainMatch], tuple[Network, ...]]
) -> list[_Candidate]:
    """Keep those with the longest prefix that has the address in it; a chain without prefixes comes last."""
    lengths = [_longest(networks(each.match), address) for each in candidates]
    best = max((each for each in lengths if each is not None), default=None)
    return [each for each, length in zip(candidates, lengths, strict=True) if length is not None and length == best]


def _longest(networks: Iterable[Network], address: Address | None) -> int | None:
    """Return the longest prefix that has the address in it, -1 if there are none to be in, None if it is in none."""
    listed = tuple(networks)
    if not listed:
        return -1
    return max((each.prefixlen for each in listed if address is not None and address in each), default=None)


def _of_source_type(candidates: list[_Candidate], source: SourceType) -> list[_Candidate]:
    return [each for each in candidates if each.match.source_type is source] or [
        each for each in candidates if each.match.source_type is SourceType.ANY
    ]


def _of_port(candidates: list[_Candidate], port: int) -> list[_Candidate]:
    return [each for each in candidates if port in each.match.source_ports] or [
        each for each in candidates if not each.match.source_ports
    ]


def _source_type(own: Address | None, peer: Address | None) -> SourceType:
    # A peer without an IP address is on a unix socket, and so on this machine.
    near = peer is None or peer.is_loopback or peer == own
    return SourceType.SAME_IP_OR_LOOPBACK if near else SourceType.EXTERNAL


def _address(endpoint: Endpoint) -> Address | None:
    address = parse_ip_address(endpoint.address)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
