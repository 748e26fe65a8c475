"""Route configurations: one for every table of every port."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import BoolValue

from authplane.controlplane.graph.model.host_model import Answering, Host, RouteTable, ServiceHeaders
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.port_model import PlainPort, Port
from authplane.controlplane.render.listeners.connection_needs import Needs
from authplane.controlplane.render.listeners.filter_chain import Chain, table_name
from authplane.controlplane.render.native.native_filters import SWITCHED_OFF, table_changes
from authplane.controlplane.render.resource_parts import Part, Single, Whole, message_of
from authplane.controlplane.render.routes.route_messages import Common, answer, route_parts, unmatched
from authplane.controlplane.render.stripped_headers import STRIP
from authplane.policy.placement.source_placement import CERTIFICATE_HEADER

_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_FAILED_OPEN: Final = "x-envoy-auth-failure-mode-allowed"
_HOST: Final = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(:[0-9]*)?"
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_FEW: Final = 16
"""So many routes are rendered together: to find out which of them is new takes longer."""


def route_tables_of(ports: Iterable[Port], needs: Needs) -> Iterator[Single[route_pb2.RouteConfiguration]]:
    """Return the route configurations of all ports."""
    for port in ports:
        scheme = "http" if isinstance(port, PlainPort) else "https"
        for table in port.tables:
            yield Single(Part("routes", table, partial(_table, table, scheme, needs)))


def _table(table: RouteTable, scheme: str, needs: Needs) -> Message | Whole[route_pb2.RouteConfiguration]:
    chain = needs.chain(table)
    shell = _shell(table, chain)
    parts = tuple(_entry(each, scheme, chain) for each in table.entries)
    if chain.natives is not None and not any(ANY in _names(each) for each in table.entries):
        nobody = Answering(name="nobody", names=(ANY,), status=_NOT_FOUND)
        parts = (*parts, Part("nobody", table, partial(_answering, nobody, chain), chain))
    whole = Whole(shell.name, shell, "virtual_hosts", parts)
    return message_of(whole) if _is_small(table) else whole


def _is_small(table: RouteTable) -> bool:
    return len(table.entries) <= _FEW and sum(len(host.routes) for host in table.hosts) <= _FEW


def _names(entry: Host | Answering) -> tuple[str, ...]:
    return entry.names if isinstance(entry, Answering) else (entry.name,)


def _shell(table: RouteTable, chain: Chain) -> route_pb2.RouteConfiguration:
    """Render a table without hosts."""
    shell = route_pb2.RouteConfiguration(
        name=table_name(table.name, chain),
        ignore_port_in_host_matching=True,
        # Envoy's mark of a request that was allowed without a check: we do not enable it, so only a client can set it.
        request_headers_to_remove=[_FAILED_OPEN],
    )
    if chain.natives is not None:
        if chain.natives.certificates:
            # It is there for the rules alone.
            shell.request_headers_to_remove.append(CERTIFICATE_HEADER)
        for name, changed in table_changes(chain.natives).items():
            shell.typed_per_filter_config[name].CopyFrom(changed)
    if table.gaps:
        # The cluster of what cannot be found is never there.
        shell.validate_clusters.CopyFrom(BoolValue(value=False))
    return shell


def _entry(entry: Host | Answering, scheme: str, chain: Chain) -> Part | Whole[pb.VirtualHost]:
    if isinstance(entry, Answering):
        return Part("answering", entry, partial(_answering, entry, chain), chain)
    common = Common(scheme, chain, entry.reserved)
    if len(entry.routes) > _FEW:
        return _host(entry, common)
    return Part("virtual host", entry, partial(_whole_host, entry, common), common)


def _whole_host(host: Host, common: Common) -> pb.VirtualHost:
    return message_of(_host(host, common))


def _host(host: Host, common: Common) -> Whole[pb.VirtualHost]:
    shell = pb.VirtualHost(name=host.name, domains=[host.name])
    if host.one_label and host.name.startswith("*."):
        shell.routes.extend([_no_host(common.chain), _other_labels(host.name, common.chain)])
    if common.chain.strips and not isinstance(host.reserved, ServiceHeaders):
        shell.typed_per_filter_config[STRIP].CopyFrom(SWITCHED_OFF)
    routes = tuple(route_parts(host, common))
    if common.chain.natives is not None:
        # Without a route, filters would deny that are closed by default.
        routes = (*routes, Part("no route", host, partial(unmatched, _NOT_FOUND, common.chain), common))
    return Whole(host.name, shell, "routes", routes)


def _answering(entry: Answering, chain: Chain) -> pb.VirtualHost:
    return pb.VirtualHost(name=entry.name, domains=entry.names, routes=[unmatched(entry.status, chain)])


def _no_host(chain: Chain) -> pb.Route:
    """Refuse what names no host and ends like one: an origin may read ``x@a.example``, or two names, as another's."""
    return answer(_unless_host(_HOST), _BAD_REQUEST, chain)


def _other_labels(wildcard: str, chain: Chain) -> pb.Route:
    """Answer for names that a wildcard does not cover: Contour's covers one label, Envoy's any number."""
    # The end of the name is known, or Envoy would not look here: labels are counted, so that the pattern stays small.
    covered = rf"{_LABEL}(\.[A-Za-z0-9_-]+){{{wildcard.count('.')}}}(:[0-9]*)?"
    return answer(_unless_host(covered), _NOT_FOUND, chain)


def _unless_host(regex: str) -> pb.RouteMatch:
    match = pb.RouteMatch(prefix="/", headers=[pb.HeaderMatcher(name=":authority", invert_match=True)])
    match.headers[0].string_match.safe_regex.regex = regex
    return match
