"""Route configurations of Gateways."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, assert_never

from envoy.config.core.v3 import substitution_format_string_pb2
from envoy.config.route.v3 import route_components_pb2 as pb
from envoy.config.route.v3 import route_pb2
from envoy.type.matcher.v3 import regex_pb2
from envoy.type.v3.range_pb2 import Int64Range
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import BoolValue, UInt32Value

from authplane.controlplane.graph.gateway.gateway_api import splits
from authplane.controlplane.graph.gateway.http_routes import RESOURCE
from authplane.controlplane.graph.model.host_model import GatewayHost
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.match_model import Match, Prefix
from authplane.controlplane.graph.model.port_model import GatewayChain, GatewayPort, PlainPort, SecurePort
from authplane.controlplane.graph.model.programming import gateway_listener, gateway_routes
from authplane.controlplane.graph.model.route_authorization import Enforced, Shadow, Unprotected
from authplane.controlplane.graph.model.route_model import (
    GatewayRoute,
    NewPath,
    NewPrefix,
    ResourceMetadata,
    Share,
    Split,
)
from authplane.controlplane.render.envoy_pieces import limit
from authplane.controlplane.render.listeners.filter_chain import Chain, per_route, table_name
from authplane.controlplane.render.listeners.gateway_ports import Needs
from authplane.controlplane.render.native.denial_replies import MCP_ROUTE, challenge_fields
from authplane.controlplane.render.native.native_decisions import Placed, placed_of
from authplane.controlplane.render.native.native_filters import table_changes
from authplane.controlplane.render.resource_parts import Part, Single, Whole
from authplane.controlplane.render.routes.match_messages import render_match
from authplane.controlplane.render.routes.proxy_tables import (
    MISDIRECTED,
    answering,
    authorization_word,
    route_metadata,
    route_table,
    unmatched,
)
from authplane.policy.decide.denials import realm_of, scopes_of
from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS
from authplane.policy.mcp.resource_metadata import render_metadata
from authplane.policy.placement.placed_sources import CERTIFICATE_HEADER

NOWHERE: Final = "authplane/nowhere"
"""A cluster that never exists: where the share of a backend goes that cannot be found."""
_NOT_FOUND: Final = pb.RouteAction.ClusterNotFoundResponseCode.INTERNAL_SERVER_ERROR
_NO_ROUTE: Final = 404
_TOO_LARGE: Final = 413
_HOSTS: Final = "virtual_hosts"
_AUTHORITY: Final = "%REQ(:AUTHORITY)%"
_SAMPLE: Final = "authority.invalid"


def gateway_tables_of(ports: Iterable[GatewayPort], needs: Needs) -> Iterator[Single[route_pb2.RouteConfiguration]]:
    """Return the route configurations of every port."""
    for port in ports:
        match port:
            case PlainPort():
                checks = needs.chain(port.hosts)
                name = table_name(gateway_listener(port.where.port), checks)
                yield Single(Part("gateway routes", port, partial(_plain, name, port, checks), (name, checks)))
            case SecurePort():
                for chain in port.chains:
                    checks = needs.chain(chain.hosts)
                    name = table_name(gateway_routes(port.where.port, chain.name), checks)
                    yield Single(Part("gateway routes", chain, partial(_secure, name, chain, checks), (name, checks)))
            case _:
                assert_never(port)


def _plain(name: str, port: PlainPort, checks: Chain) -> Whole[route_pb2.RouteConfiguration]:
    hosts: tuple[Part | Whole[pb.VirtualHost], ...] = _hosts(port.hosts, _Kind("http", checks))
    if checks.natives is not None and all(each.name != ANY for each in port.hosts):
        hosts = (*hosts, Part("gateway nobody", port, partial(answering, "nobody", [ANY], _NO_ROUTE, checks), checks))
    return Whole(name, _table(name, checks), _HOSTS, hosts)


def _secure(name: str, chain: GatewayChain, checks: Chain) -> Whole[route_pb2.RouteConfiguration]:
    hosts: tuple[Part | Whole[pb.VirtualHost], ...] = _hosts(chain.hosts, _Kind("https", checks))
    elsewhere = [*([] if chain.hostname == ANY else [ANY]), *chain.elsewhere]
    if elsewhere:
        others = partial(answering, "misdirected", elsewhere, MISDIRECTED, checks)
        hosts = (*hosts, Part("gateway misdirected", chain, others, checks))
    return Whole(name, _table(name, checks), _HOSTS, hosts)


def _table(name: str, checks: Chain) -> route_pb2.RouteConfiguration:
    table = route_table(name)
    if checks.natives is not None and checks.natives.certificates:
        # It is there for the rules alone.
        table.request_headers_to_remove.append(CERTIFICATE_HEADER)
    if checks.natives is not None:
        _put(table.typed_per_filter_config, table_changes(checks.natives))
    # One cluster is never there: see NOWHERE.
    table.validate_clusters.CopyFrom(BoolValue(value=False))
    return table


class _Kind(NamedTuple):
    """What all routes of a table have in common."""

    scheme: str
    checks: Chain
    protected: bool = False
    """Whether requests to some backend of the host are checked: then no client names itself to any of them."""


def _hosts(hosts: Iterable[GatewayHost], kind: _Kind) -> tuple[Whole[pb.VirtualHost], ...]:
    return tuple(_host(each, kind) for each in hosts)


def _host(host: GatewayHost, kind: _Kind) -> Whole[pb.VirtualHost]:
    kind = kind._replace(protected=any(_is_checked(share) for split in splits([host]) for share in split.shares))
    routes = tuple(part for each in host.routes for part in _parts(each, kind))
    if kind.checks.natives is not None:
        # Without a route, filters would deny that are closed by default.
        last = partial(unmatched, _NO_ROUTE, kind.checks)
        routes = (*routes, Part("gateway no route", host, last, kind))
    return Whole(host.name, pb.VirtualHost(name=host.name, domains=[host.name]), "routes", routes)


def _is_checked(share: Share) -> bool:
    return isinstance(share.authorization, Enforced)


def _parts(route: GatewayRoute, kind: _Kind) -> Iterator[Part]:
    if _reads_bodies(route, kind.checks):
        yield Part("gateway large bodies", route, partial(_too_large, route, kind), kind)
    yield Part("gateway route", route, partial(_route, route, kind), kind)


def _reads_bodies(route: GatewayRoute, checks: Chain) -> bool:
    """Tell whether every request that a route takes is checked, and Envoy reads the bodies of some."""
    shares = route.action.shares if isinstance(route.action, Split) else ()
    checked = bool(shares) and all(_is_checked(each) for each in shares)
    return checked and any(placed.reads_mcp for each in shares if (placed := _placed(each, checks)) is not None)


def _too_large(route: GatewayRoute, kind: _Kind) -> pb.Route:
    """Refuse a body that is too large before any filter waits for it: one that reads and one that asks do not agree."""
    most = kind.checks.natives.most_bytes if kind.checks.natives is not None else 0
    message = unmatched(_TOO_LARGE, kind.checks)
    message.name = route.name
    if isinstance(route.action, Split):
        message.metadata.CopyFrom(route_metadata(_word(route.action), _protocol(route.action)))
    message.match.CopyFrom(render_match(route.match))
    length = message.match.headers.add(name="content-length")
    length.range_match.CopyFrom(Int64Range(start=most + 1, end=2**63 - 1))
    return message


def _route(route: GatewayRoute, kind: _Kind) -> pb.Route:
    message = pb.Route(name=route.name, match=render_match(route.match))
    match route.action:
        case Split():
            told = _protocol(route.action) | _told(route.action, kind)
            message.metadata.CopyFrom(route_metadata(_word(route.action), told))
            _add_split(message, route.match, route.action, kind)
        case ResourceMetadata():
            message.metadata.CopyFrom(route_metadata(authorization_word(Unprotected())))
            message.direct_response.CopyFrom(_document(route.action))
            _put(message.typed_per_filter_config, per_route(kind.checks, Unprotected()))
        case _:
            assert_never(route.action)
    return message


def _word(split: Split) -> str:
    words = {authorization_word(share.authorization) for share in split.shares}
    return words.pop() if len(words) == 1 else "by-backend"


def _protocol(split: Split) -> dict[str, str]:
    """Return what clients speak, if it is MCP: whoever answers them in Envoy has to know."""
    return MCP_ROUTE if any(share.mcp for share in split.shares) else {}


def _placed(share: Share, checks: Chain) -> Placed | None:
    if checks.natives is None or not isinstance(share.authorization, Enforced):
        return None
    return placed_of(share.authorization.placing, checks.natives.envoy)


def _told(split: Split, kind: _Kind) -> dict[str, str]:
    """Return what is said of a route where Envoy decides by itself."""
    placed = [each for share in split.shares if (each := _placed(share, kind.checks)) is not None]
    policies = dict.fromkeys(name for each in placed for name in each.policies)
    return {"policies": " ".join(policies), **_challenge(split, kind)} if placed else {}


def _challenge(split: Split, kind: _Kind) -> dict[str, str]:
    """Return what those are told who show no token."""
    for share in split.shares:
        placed, authorization = _placed(share, kind.checks), share.authorization
        if placed is None or not isinstance(authorization, Enforced) or authorization.placing is None:
            continue
        guards, resource = authorization.placing.chain.attachments, dict(authorization.context).get(RESOURCE, "")
        if placed.wants_tokens and resource:
            return challenge_fields(kind.scheme, realm_of(guards), resource, scopes_of(guards))
    return {}


# --- Sending on


def _add_split(message: pb.Route, match: Match, split: Split, kind: _Kind) -> None:
    action = message.route
    timeout = limit(split.timeout)
    if timeout is not None:
        action.timeout.CopyFrom(timeout)
    idle = limit(split.idle)
    if idle is not None:
        action.idle_timeout.CopyFrom(idle)
    if split.rewrite is not None:
        _rewrite(action, match, split.rewrite)
    if any(share.cluster is None for share in split.shares):
        action.cluster_not_found_response_code = _NOT_FOUND
    if len(split.shares) == 1:
        [share] = split.shares
        action.cluster = share.cluster or NOWHERE
        if share.host:
            action.host_rewrite_literal = share.host
        message.request_headers_to_remove.extend(_removed(share, kind))
        _put(message.typed_per_filter_config, per_route(kind.checks, share.authorization))
    else:
        action.weighted_clusters.clusters.extend(_weighted(share, kind) for share in split.shares)


def _weighted(share: Share, kind: _Kind) -> pb.WeightedCluster.ClusterWeight:
    return pb.WeightedCluster.ClusterWeight(
        name=share.cluster or NOWHERE,
        weight=UInt32Value(value=share.weight),
        host_rewrite_literal=share.host,
        request_headers_to_remove=_removed(share, kind),
        typed_per_filter_config=per_route(kind.checks, share.authorization),
    )


def _removed(share: Share, kind: _Kind) -> list[str]:
    """Return the headers that go no further; whoever is asked and heeded sees to it by itself."""
    authorization = share.authorization
    if not isinstance(authorization, Enforced) or isinstance(authorization.service.on_failure, Shadow):
        return list(IDENTITY_HEADERS) if kind.protected else []
    placing, placed = authorization.placing, _placed(share, kind.checks)
    if placing is None or placed is None or placed.decide is None:
        return []
    return [*(["authorization"] if placing.chain.uses_tokens else []), *IDENTITY_HEADERS]


def _put(target: Any, changes: dict[str, Any]) -> None:
    for name, message in changes.items():
        target[name].CopyFrom(message)


def _rewrite(action: pb.RouteAction, match: Match, rewrite: NewPrefix | NewPath) -> None:
    match rewrite:
        case NewPath(path):
            action.regex_rewrite.CopyFrom(_replaced("^/.*$", path))
        case NewPrefix("/") if not isinstance(match.path, Prefix):
            # Otherwise the slash after the prefix would be the second one.
            action.regex_rewrite.CopyFrom(_replaced(f"^{re.escape(match.path.path)}/*", "/"))
        case NewPrefix(path):
            whole = isinstance(match.path, Prefix) and path != "/"
            action.prefix_rewrite = f"{path}/" if whole else path
        case _:
            assert_never(rewrite)


def _replaced(pattern: str, path: str) -> regex_pb2.RegexMatchAndSubstitute:
    return regex_pb2.RegexMatchAndSubstitute(pattern=regex_pb2.RegexMatcher(regex=pattern), substitution=path)


# --- Documents


def _document(action: ResourceMetadata) -> pb.DirectResponseAction:
    """Render the document with the host that the client asked: it is under that name that it knows the resource."""
    path = "" if action.path == "/" else action.path
    text = render_metadata(f"{action.scheme}://{_SAMPLE}{path}", action.issuers, action.scopes)
    fields = {name: _escaped(value) for name, value in json.loads(text).items()}
    fields["resource"] = f"{action.scheme}://{_AUTHORITY}{_escaped(path)}"
    body = Struct()
    body.update(fields)
    return pb.DirectResponseAction(
        status=200, body_format=substitution_format_string_pb2.SubstitutionFormatString(json_format=body)
    )


def _escaped(value: Any) -> Any:
    """Keep Envoy from filling in what stands between percent signs."""
    if isinstance(value, str):
        return value.replace("%", "%%")
    return [_escaped(each) for each in value] if isinstance(value, list) else value
