"""Filter chains of server listeners, and which connections they match (gRFC A36)."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from envoy.config.core.v3 import address_pb2
from envoy.config.listener.v3 import listener_components_pb2 as pb
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb

from authplane.core.problems import Problems
from authplane.dataplane.config.listeners import ChainMatch, ConnectionManager, FilterChain, SourceType
from authplane.dataplane.config.read.common_parts import parse_packed
from authplane.dataplane.config.read.connection_manager import parse_connection_manager
from authplane.dataplane.config.read.tls_contexts import parse_server_tls
from authplane.dataplane.filters.networks import Network, network_of
from authplane.dataplane.filters.registry import Scope

_UNCHECKABLE: Final = frozenset({"address_suffix", "suffix_len", "direct_source_prefix_ranges"})
_SOURCE_TYPES: Final = {each.value: each for each in SourceType}
_MOST_MATCHES: Final = 100_000


def parse_filter_chains(
    messages: Sequence[pb.FilterChain], scope: Scope, problems: Problems
) -> tuple[FilterChain, ...]:
    """Read the chains, of which no two may match the same connections equally well."""
    chains = []
    for index, message in enumerate(messages):
        with problems.at(index):
            chain = parse_filter_chain(message, scope, problems)
        if chain is not None:
            chains.append((index, chain))
    _check_duplicates(chains, problems)
    return tuple(chain for _, chain in chains)


def parse_filter_chain(message: pb.FilterChain, scope: Scope, problems: Problems) -> FilterChain | None:
    """Read a chain; None is a problem."""
    before = problems.error_count
    with problems.at("filter_chain_match"):
        match = _parse_match(message.filter_chain_match, problems)
    with problems.at("filters"):
        manager = _parse_network_filters(message.filters, scope, problems)
    tls = None
    if message.HasField("transport_socket"):
        with problems.at("transport_socket"):
            tls = parse_server_tls(message.transport_socket, scope, problems)
    if manager is None or problems.error_count != before:
        return None
    return FilterChain(name=message.name, match=match, manager=manager, tls=tls)


def _parse_network_filters(messages: Sequence[pb.Filter], scope: Scope, problems: Problems) -> ConnectionManager | None:
    if len(messages) != 1:
        problems.add(
            "FiltersInvalid", "The chain does not have exactly one filter. Set one filter, an HttpConnectionManager."
        )
    names: set[str] = set()
    managers = []
    for index, message in enumerate(messages):
        with problems.at(index):
            if message.name in names:
                with problems.at("name"):
                    problems.add("NameDuplicate", f"Another filter has the name '{message.name}'. Rename one of them.")
            names.add(message.name)
            with problems.at("typed_config"):
                manager = parse_packed(hcm_pb.HttpConnectionManager, message.typed_config, problems)
                if manager is not None:
                    managers.append(parse_connection_manager(manager, scope, problems))
    return managers[0] if len(managers) == 1 else None


def _parse_match(message: pb.FilterChainMatch, problems: Problems) -> ChainMatch | None:
    """Read what a chain matches; None if that is nothing: gRPC knows no server names or protocols at this point."""
    for field, _ in message.ListFields():
        if field.name in _UNCHECKABLE:
            with problems.at(field.name):
                problems.add("MatchUnsupported", "gRPC servers do not support this condition. Remove it.")
    destinations = _parse_ranges("prefix_ranges", message.prefix_ranges, problems)
    sources = _parse_ranges("source_prefix_ranges", message.source_prefix_ranges, problems)
    source_type = _SOURCE_TYPES.get(message.source_type)
    if source_type is None:
        with problems.at("source_type"):
            problems.add(
                "SourceTypeUnknown",
                f"{int(message.source_type)} is not a source type. Supported: ANY, SAME_IP_OR_LOOPBACK, EXTERNAL.",
            )
        return None
    if (
        message.destination_port.value
        or message.server_names
        or message.application_protocols
        or message.transport_protocol not in {"", "raw_buffer"}
    ):
        return None
    return ChainMatch(
        destinations=destinations,
        raw_buffer=bool(message.transport_protocol),
        source_type=source_type,
        sources=sources,
        source_ports=tuple(message.source_ports),
    )


def _parse_ranges(name: str, messages: Sequence[address_pb2.CidrRange], problems: Problems) -> tuple[Network, ...]:
    found = []
    for index, message in enumerate(messages):
        network = network_of(message.address_prefix, message.prefix_len.value)
        if network is not None:
            found.append(network)
            continue
        with problems.at(name, index, "address_prefix"):
            problems.add(
                "AddressInvalid", f"'{message.address_prefix}' is not an IP address. Use an IPv4 or IPv6 address."
            )
    return tuple(found)


def _check_duplicates(chains: Sequence[tuple[int, FilterChain]], problems: Problems) -> None:
    """Report chains that match the same as another, or as themselves, once everything they list is multiplied out."""
    seen: dict[tuple[object, ...], int] = {}
    for index, chain in chains:
        with problems.at(index, "filter_chain_match"):
            count = _count(chain.match)
            if len(seen) + count > _MOST_MATCHES:
                problems.add(
                    "MatchTooLarge",
                    f"The chains have more than {_MOST_MATCHES} combinations of conditions. Use fewer ranges or ports.",
                )
                return
            for place in _places(chain.match):
                if place in seen:
                    problems.add(
                        "MatchDuplicate",
                        f"Filter chain {seen[place]} has the same conditions. Change or remove one of the two chains.",
                    )
                    break
                seen[place] = index


def _count(match: ChainMatch | None) -> int:
    if match is None:
        return 0
    return max(len(match.destinations), 1) * max(len(match.sources), 1) * max(len(match.source_ports), 1)


def _places(match: ChainMatch | None) -> Iterator[tuple[object, ...]]:
    if match is None:
        return
    for destination, source, port in product(
        match.destinations or (None,), match.sources or (None,), match.source_ports or (0,)
    ):
        yield destination, match.raw_buffer, match.source_type, source, port
