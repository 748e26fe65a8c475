"""Route configurations."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final, assert_never

from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from google.protobuf.struct_pb2 import Struct, Value

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.match_words import match_words
from authplane.controlplane.graph.model.port_model import SecureHost
from authplane.controlplane.graph.model.programming import FALLBACK_ROUTES, HTTP_LISTENER, route_name
from authplane.controlplane.graph.model.route_authorization import (
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    RouteAuthorization,
    Shadow,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Route
from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.listeners.filter_chain import Chain, chain_of, per_route, table_name
from authplane.controlplane.render.native.denial_replies import ROUTE as METADATA
from authplane.controlplane.render.native.native_filters import SWITCHED_OFF
from authplane.controlplane.render.resource_parts import Part, Resource, Single, Whole
from authplane.controlplane.render.routes.action_messages import add_action
from authplane.controlplane.render.routes.match_messages import render_match
from authplane.controlplane.render.stripped_headers import STRIP, render_strip_more, stripped_names

MISDIRECTED: Final = 421
_WITHDRAWN: Final = 503
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_FAILED_OPEN: Final = "x-envoy-auth-failure-mode-allowed"
_HOST: Final = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(:[0-9]*)?"
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"


def route_tables_of(graph: Graph) -> Iterator[Resource[route_pb2.RouteConfiguration]]:
    """Return the route configurations: one for each host behind TLS, one for all others, one for the fallback."""
    for secure in graph.secure_hosts:
        yield Single(Part("routes", secure, partial(_secure_routes, secure)))
    if graph.fallback is not None:
        chain = chain_of(graph.fallback.hosts)
        name = table_name(FALLBACK_ROUTES, chain)
        shell = route_table(name)
        # Hosts are found by name, so it does not matter which stands first.
        shell.virtual_hosts.append(answering("misdirected", ["*", *graph.fallback.elsewhere], MISDIRECTED, chain))
        yield Whole(name, shell, "virtual_hosts", _hosts(graph.fallback.hosts, chain))
    if graph.plain_hosts:
        chain = chain_of(graph.plain_hosts)
        name = table_name(HTTP_LISTENER, chain)
        shell = route_table(name)
        shell.virtual_hosts.extend(answering(fqdn, [fqdn], _WITHDRAWN, chain) for fqdn in graph.refused)
        yield Whole(name, shell, "virtual_hosts", _hosts(graph.plain_hosts, chain))


def route_table(name: str) -> route_pb2.RouteConfiguration:
    """Render a table without hosts."""
    return route_pb2.RouteConfiguration(
        name=name,
        ignore_port_in_host_matching=True,
        # Envoy's mark of a request that went through unchecked: we do not ask for it, so only a client can have set it.
        request_headers_to_remove=[_FAILED_OPEN],
    )


def _secure_routes(secure: SecureHost) -> route_pb2.RouteConfiguration:
    """Render the routes of a virtual host behind TLS; a request for another host is misdirected (RFC 9110, 15.5.20)."""
    chain = chain_of([secure.host])
    table = route_table(table_name(route_name(secure.host.fqdn), chain))
    table.virtual_hosts.extend(
        [
            _virtual_host(secure.host, chain),
            answering("misdirected", ["*", *secure.elsewhere], MISDIRECTED, chain),
        ]
    )
    return table


def _hosts(hosts: Iterable[Host], chain: Chain) -> tuple[Part, ...]:
    return tuple(Part("virtual host", host, partial(_virtual_host, host, chain), chain) for host in hosts)


def _virtual_host(host: Host, chain: Chain) -> pb.VirtualHost:
    routes = [_route(route, host, chain) for route in host.routes]
    if host.fqdn.startswith("*."):
        routes[:0] = [_no_host(chain), _other_labels(host.fqdn, chain)]
    message = pb.VirtualHost(name=host.fqdn, domains=[host.fqdn], routes=routes)
    if chain.strips and host.promised is None:
        message.typed_per_filter_config[STRIP].CopyFrom(SWITCHED_OFF)
    return message


def answering(name: str, domains: list[str], status: int, chain: Chain) -> pb.VirtualHost:
    """Answer every request by ourselves: nothing behind is reached."""
    return pb.VirtualHost(
        name=name,
        domains=domains,
        routes=[unmatched(status, chain)],
    )


def unmatched(status: int, chain: Chain) -> pb.Route:
    """Answer what no other route takes."""
    return _answer(pb.RouteMatch(prefix="/"), status, chain)


def _no_host(chain: Chain) -> pb.Route:
    """Refuse what names no host and ends like one: an origin may read ``x@a.example``, or two names, as another's."""
    return _answer(_unless_host(_HOST), _BAD_REQUEST, chain)


def _other_labels(wildcard: str, chain: Chain) -> pb.Route:
    """Answer for names that a wildcard does not cover: Contour's covers one label, Envoy's any number."""
    # The end of the name is known, or Envoy would not look here: labels are counted, so that the pattern stays small.
    covered = rf"{_LABEL}(\.[A-Za-z0-9_-]+){{{wildcard.count('.')}}}(:[0-9]*)?"
    return _answer(_unless_host(covered), _NOT_FOUND, chain)


def _unless_host(regex: str) -> pb.RouteMatch:
    match = pb.RouteMatch(prefix="/", headers=[pb.HeaderMatcher(name=":authority", invert_match=True)])
    match.headers[0].string_match.safe_regex.regex = regex
    return match


def _answer(match: pb.RouteMatch, status: int, chain: Chain) -> pb.Route:
    return pb.Route(
        match=match,
        direct_response=pb.DirectResponseAction(status=status),
        typed_per_filter_config=per_route(chain, Unprotected()),
    )


def _route(route: Route, host: Host, chain: Chain) -> pb.Route:
    message = pb.Route(
        name=f"{route.proxy}#{match_words(route.match)}",
        match=render_match(route.match),
        metadata=route_metadata(authorization_word(route.authorization)),
        typed_per_filter_config=per_route(chain, route.authorization),
    )
    names = stripped_names(host.promised or (), route.authorization)
    if names:
        message.typed_per_filter_config[STRIP].CopyFrom(pack(render_strip_more(names)))
    add_action(message, route)
    return message


def route_metadata(authorization: str, more: Mapping[str, str] | None = None) -> base_pb2.Metadata:
    """Let the access log say what held for the request, and local replies what is to be told."""
    texts = {"authorization": authorization, **(more or {})}
    fields = Struct(fields={name: Value(string_value=text) for name, text in texts.items()})
    return base_pb2.Metadata(filter_metadata={METADATA: fields})


def authorization_word(authorization: RouteAuthorization) -> str:
    """Name the state of a route for people."""
    match authorization:
        case Unprotected():
            return "unprotected"
        case Disabled():
            return "disabled"
        case Enforced(service=service):
            return _enforced_word(service.on_failure)
        case _:
            assert_never(authorization)


def _enforced_word(on_failure: FailClosed | FailOpen | Shadow) -> str:
    match on_failure:
        case FailClosed():
            return "enforced"
        case FailOpen():
            return "fails-open"
        case Shadow():
            return "shadow"
        case _:
            assert_never(on_failure)
