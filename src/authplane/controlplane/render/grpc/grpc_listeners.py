"""Listeners of gRPC servers: gRFC A36, with ext_authz (A92), rbac (A41) and the composite filter (A103)."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias, assert_never

from envoy.config.core.v3 import base_pb2, config_source_pb2, extension_pb2, grpc_service_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.common.matching.v3 import extension_matcher_pb2
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as rbac_filter_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.grpc_service.channel_credentials.insecure.v3 import insecure_credentials_pb2
from envoy.extensions.grpc_service.channel_credentials.tls.v3 import tls_credentials_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.type.matcher.v3 import http_inputs_pb2, string_pb2
from envoy.type.v3 import http_status_pb2
from google.protobuf.message import Message
from xds.core.v3 import extension_pb2 as xds_extension_pb2
from xds.type.matcher.v3 import matcher_pb2

from authplane.controlplane.graph.model.grpc_servers import Closed, GrpcServer, Judged, Open, PolicyCheck, ServerTls
from authplane.controlplane.render.envoy_pieces import limit, pack, socket_address
from authplane.controlplane.render.ext_authz_filter import kept_headers
from authplane.controlplane.render.grpc.grpc_grants import render_grants
from authplane.controlplane.render.resource_parts import Part, Single
from authplane.core.names import Ref
from authplane.policy.check.check_context import TARGET_METADATA
from authplane.policy.placement.grpc_reach import Anybody, Callers, Nobody, Reach, Workloads

_UNAVAILABLE: Final = http_status_pb2.StatusCode.ServiceUnavailable
_NOBODY: Final = rbac_filter_pb2.RBAC(rules=rbac_pb2.RBAC(action=rbac_pb2.RBAC.Action.ALLOW))
"""Rules that allow, of which there are none."""
_COMPOSITE: Final = "composite"
_Filters: TypeAlias = tuple[tuple[str, Message], ...]


def grpc_listeners_of(servers: Iterable[GrpcServer]) -> Iterator[Single[listener_pb2.Listener]]:
    """Return the Listener of each server."""
    for server in servers:
        yield Single(Part("grpc", server, partial(render_grpc_listener, server)))


def render_grpc_listener(server: GrpcServer) -> listener_pb2.Listener:
    """Render a Listener: one chain for all connections, one route for all calls."""
    return listener_pb2.Listener(
        name=server.listener,
        address=socket_address(server.address, server.port),
        default_filter_chain=listener_components_pb2.FilterChain(
            name=str(server.ref),
            filters=[
                listener_components_pb2.Filter(
                    name="envoy.filters.network.http_connection_manager", typed_config=pack(_manager(server))
                )
            ],
            transport_socket=None if server.tls is None else _transport_socket(server.tls),
        ),
    )


def _manager(server: GrpcServer) -> hcm_pb2.HttpConnectionManager:
    filters = (*_judges(server), ("router", router_pb2.Router()))
    host = route_components_pb2.VirtualHost(name=str(server.ref), domains=["*"])
    route = host.routes.add(
        match=route_components_pb2.RouteMatch(prefix=""),
        non_forwarding_action=route_components_pb2.NonForwardingAction(),
    )
    grants = _grants(server)
    if grants is not None:
        route.typed_per_filter_config[_COMPOSITE].CopyFrom(pack(grants))
    return hcm_pb2.HttpConnectionManager(
        stat_prefix=server.listener,
        http_filters=[hcm_pb2.HttpFilter(name=name, typed_config=pack(config)) for name, config in filters],
        # Servers on asyncio do not know the authority of a call.
        route_config=route_pb2.RouteConfiguration(name=server.listener, virtual_hosts=[host]),
    )


def _transport_socket(tls: ServerTls) -> base_pb2.TransportSocket:
    context = tls_pb2.DownstreamTlsContext(
        common_tls_context=tls_pb2.CommonTlsContext(tls_certificate_provider_instance=_provider(tls.certificate))
    )
    if tls.clients:
        validation = common_pb2.CertificateValidationContext(ca_certificate_provider_instance=_provider(tls.clients))
        context.common_tls_context.validation_context.CopyFrom(validation)
        context.require_client_certificate.value = True
    return base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(context))


def _provider(name: str) -> common_pb2.CertificateProviderPluginInstance:
    return common_pb2.CertificateProviderPluginInstance(instance_name=name)


# --- Who judges calls


def _judges(server: GrpcServer) -> _Filters:
    """Return the filters before the router; with a composite filter where not all calls are judged alike."""
    match server.authorization:
        case Open():
            return ()
        case Closed():
            return (("rbac", _NOBODY),)
        case Judged(reach=reach, check=check, grants=grants):
            asks = _ext_authz(server.ref, check)
            if grants is None and not reach.paths and not reach.prefixes:
                return _filters(reach.others, asks)
            config = extension_matcher_pb2.ExtensionWithMatcher(
                extension_config=_envoy_extension(_COMPOSITE, composite_pb2.Composite()),
                xds_matcher=_tree(reach, asks),
            )
            return ((_COMPOSITE, config),)
        case _:
            assert_never(server.authorization)


def _grants(server: GrpcServer) -> route_components_pb2.FilterConfig | None:
    """Return what overrides the composite filter in servers that understand it."""
    match server.authorization:
        case Judged(reach=reach, check=check, grants=grants) if grants is not None:
            asks = _ext_authz(server.ref, check)
            return render_grants(grants, asked=_outcome(grants.asked, asks), otherwise=_outcome(reach, asks))
        case _:
            return None


def _filters(callers: Callers, asks: ext_authz_pb2.ExtAuthz) -> _Filters:
    """Return the filters that decide calls which these callers may make."""
    match callers:
        case Nobody():
            return (("rbac", _NOBODY),)
        case Workloads(ids=ids):
            return (("rbac", _workloads(ids)), ("ext_authz", asks))
        case Anybody():
            return (("ext_authz", asks),)
        case _:
            assert_never(callers)


def _workloads(ids: frozenset[str]) -> rbac_filter_pb2.RBAC:
    principals = [
        rbac_pb2.Principal(
            authenticated=rbac_pb2.Principal.Authenticated(principal_name=string_pb2.StringMatcher(exact=each))
        )
        for each in sorted(ids)
    ]
    policy = rbac_pb2.Policy(permissions=[rbac_pb2.Permission(any=True)], principals=principals)
    return rbac_filter_pb2.RBAC(rules=rbac_pb2.RBAC(action=rbac_pb2.RBAC.Action.ALLOW, policies={"workloads": policy}))


def _ext_authz(ref: Ref, check: PolicyCheck) -> ext_authz_pb2.ExtAuthz:
    if check.ca:
        roots = tls_pb2.CommonTlsContext.CertificateProviderInstance(instance_name=check.ca)
        plugin: Message = tls_credentials_pb2.TlsCredentials(
            root_certificate_provider=roots,
            identity_certificate_provider=(
                tls_pb2.CommonTlsContext.CertificateProviderInstance(instance_name=check.own) if check.own else None
            ),
        )
    else:
        plugin = insecure_credentials_pb2.InsecureCredentials()
    return ext_authz_pb2.ExtAuthz(
        transport_api_version=config_source_pb2.ApiVersion.V3,
        grpc_service=grpc_service_pb2.GrpcService(
            google_grpc=grpc_service_pb2.GrpcService.GoogleGrpc(
                target_uri=check.target, stat_prefix="policy", channel_credentials_plugin=[pack(plugin)]
            ),
            timeout=limit(check.timeout),
            # gRFC A92 has no context extensions.
            initial_metadata=[base_pb2.HeaderValue(key=TARGET_METADATA, value=str(ref))],
        ),
        status_on_error=http_status_pb2.HttpStatus(code=_UNAVAILABLE),
        include_peer_certificate=True,
        decoder_header_mutation_rules=kept_headers(),
    )


# --- Trees


def _tree(reach: Reach, asks: ext_authz_pb2.ExtAuthz) -> matcher_pb2.Matcher:
    found = _outcome(reach, asks)
    # All paths begin so.
    return found.matcher if found.HasField("matcher") else _by_prefix((("/", reach.others),), asks, found)


def _outcome(reach: Reach, asks: ext_authz_pb2.ExtAuthz) -> matcher_pb2.Matcher.OnMatch:
    """Return what judges calls, by their paths where these differ."""
    rest = _action(reach.others, asks)
    if reach.prefixes:
        rest = matcher_pb2.Matcher.OnMatch(matcher=_by_prefix(reach.prefixes, asks, rest))
    if reach.paths:
        rest = matcher_pb2.Matcher.OnMatch(matcher=_by_path(reach.paths, asks, rest))
    return rest


def _by_path(
    entries: Iterable[tuple[str, Callers]], asks: ext_authz_pb2.ExtAuthz, otherwise: matcher_pb2.Matcher.OnMatch
) -> matcher_pb2.Matcher:
    tree = _path_tree(otherwise)
    for path, callers in entries:
        tree.matcher_tree.exact_match_map.map[path].CopyFrom(_action(callers, asks))
    return tree


def _by_prefix(
    entries: Iterable[tuple[str, Callers]], asks: ext_authz_pb2.ExtAuthz, otherwise: matcher_pb2.Matcher.OnMatch
) -> matcher_pb2.Matcher:
    tree = _path_tree(otherwise)
    for prefix, callers in entries:
        tree.matcher_tree.prefix_match_map.map[prefix].CopyFrom(_action(callers, asks))
    return tree


def _path_tree(otherwise: matcher_pb2.Matcher.OnMatch) -> matcher_pb2.Matcher:
    path = http_inputs_pb2.HttpRequestHeaderMatchInput(header_name=":path")
    return matcher_pb2.Matcher(
        matcher_tree=matcher_pb2.Matcher.MatcherTree(input=_extension("path", path)), on_no_match=otherwise
    )


def _action(callers: Callers, asks: ext_authz_pb2.ExtAuthz) -> matcher_pb2.Matcher.OnMatch:
    filters = [_envoy_extension(name, config) for name, config in _filters(callers, asks)]
    action = composite_pb2.ExecuteFilterAction()
    if len(filters) == 1:
        action.typed_config.CopyFrom(filters[0])
    else:
        action.filter_chain.typed_config.extend(filters)
    return matcher_pb2.Matcher.OnMatch(action=_extension("judge", action))


def _extension(name: str, message: Message) -> xds_extension_pb2.TypedExtensionConfig:
    return xds_extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(message))


def _envoy_extension(name: str, message: Message) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=pack(message))
