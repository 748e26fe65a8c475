"""Listeners, of servers and of clients."""

from dataclasses import replace

from envoy.config.listener.v3 import listener_pb2 as pb
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb

from authplane.core.problems import Problems
from authplane.dataplane.config.listeners import ApiListener, Listener, ServerListener
from authplane.dataplane.config.read.common_parts import parse_endpoint, parse_packed
from authplane.dataplane.config.read.connection_manager import parse_connection_manager
from authplane.dataplane.config.read.filter_chains import parse_filter_chain, parse_filter_chains
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.registry import Scope


def parse_listener(message: pb.Listener, scope: Scope, problems: Problems) -> Listener | None:
    """Read a Listener: for clients if it has an ``api_listener``, else for servers. None is a problem."""
    if message.HasField("api_listener"):
        return _parse_api_listener(message, replace(scope, side=Side.CLIENT), problems)
    if message.HasField("address"):
        return _parse_server_listener(message, replace(scope, side=Side.SERVER), problems)
    problems.add("ListenerInvalid", "The listener is for neither a server nor a client. Set address or api_listener.")
    return None


def _parse_api_listener(message: pb.Listener, scope: Scope, problems: Problems) -> ApiListener | None:
    with problems.at("api_listener", "api_listener"):
        manager = parse_packed(hcm_pb.HttpConnectionManager, message.api_listener.api_listener, problems)
        if manager is None:
            return None
        return ApiListener(name=message.name, manager=parse_connection_manager(manager, scope, problems))


def _parse_server_listener(message: pb.Listener, scope: Scope, problems: Problems) -> ServerListener | None:
    with problems.at("address"):
        address = parse_endpoint(message.address, problems)
    if message.listener_filters:
        with problems.at("listener_filters"):
            problems.add("Unsupported", "listener_filters is not supported. Remove it.")
    if message.HasField("filter_chain_matcher"):
        with problems.at("filter_chain_matcher"):
            problems.add("Unsupported", "filter_chain_matcher is not supported. Use filter_chain_match in each chain.")
    if message.use_original_dst.value:
        with problems.at("use_original_dst"):
            problems.add("Unsupported", "use_original_dst is not supported. Remove it.")
    with problems.at("filter_chains"):
        chains = parse_filter_chains(message.filter_chains, scope, problems)
    default = None
    with problems.at("default_filter_chain"):
        if message.HasField("default_filter_chain"):
            default = parse_filter_chain(message.default_filter_chain, scope, problems)
        elif not message.filter_chains:
            problems.add(
                "ChainsMissing", "The listener has no filter chain. Set filter_chains or default_filter_chain."
            )
    if address is None:
        return None
    return ServerListener(name=message.name, address=address, chains=chains, default_chain=default)
