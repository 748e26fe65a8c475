"""Listeners: a connection manager for all plain hosts, one for each host behind TLS."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import lru_cache, partial
from typing import Final

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, protocol_pb2, substitution_format_string_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.access_loggers.stream.v3 import stream_pb2
from envoy.extensions.filters.listener.tls_inspector.v3 import tls_inspector_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import BoolValue, UInt32Value

from authplane.controlplane.graph.model.graph_model import ConnectionSettings, Graph
from authplane.controlplane.graph.model.port_model import Address, ClientCertificates, Fallback, Forwarded, SecureHost
from authplane.controlplane.graph.model.programming import (
    FALLBACK_CHAIN,
    FALLBACK_ROUTES,
    HTTP_LISTENER,
    HTTPS_LISTENER,
    route_name,
)
from authplane.controlplane.graph.model.upstreams import TlsLimits
from authplane.controlplane.render.envoy_pieces import FROM_ADS, TLS_VERSIONS, duration, limit, pack, socket_address
from authplane.controlplane.render.listeners.filter_chain import Chain, chain_of, held_back, http_filters, table_name
from authplane.controlplane.render.native.denial_replies import ROUTE as METADATA
from authplane.controlplane.render.native.denial_replies import local_replies, mcp_refusals
from authplane.controlplane.render.native.native_filters import Natives
from authplane.controlplane.render.native.rbac_policies import DECIDED_BY, FOUND, slot_prefix
from authplane.controlplane.render.native.request_fronts import RBAC_METADATA
from authplane.controlplane.render.resource_parts import Part, Whole
from authplane.core.names import ObjectName
from authplane.core.timeouts import After

_BUFFER_LIMIT: Final = 32 * 1024
_IDLE: Final = timedelta(minutes=5)
_LONGEST_CONNECTION: Final = timedelta(hours=1)
_LARGEST_HEADERS: Final = 32
"""In KiB: expressions read no larger ones."""
_HCM: Final = hcm_pb2.HttpConnectionManager
ACCESS_LOG: Final = {
    "time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "host": "%REQ(:AUTHORITY)%",
    "path": "%PATH(NQ)%",
    "status": "%RESPONSE_CODE%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "authorization": f"%METADATA(ROUTE:{METADATA}:authorization)%",
    "route": "%ROUTE_NAME%",
    "duration": "%DURATION%",
    "request_id": "%REQ(X-REQUEST-ID)%",
}
"""A line of JSON for each request. The query is left out: tokens travel there.

Every field costs a large gateway dear: Envoy compares all filter chains whenever the listener changes (decision 0009).
"""

_POLICIES: Final = f"%METADATA(ROUTE:{METADATA}:policies)%"


def listeners_of(graph: Graph) -> Iterator[Whole[listener_pb2.Listener]]:
    """Return the listeners that have something to serve."""
    connections = graph.connections
    if graph.plain_hosts:
        chain = chain_of(graph.plain_hosts)
        shell = listener_shell(HTTP_LISTENER, graph.http, held_back(graph.plain_hosts))
        shell.filter_chains.append(
            listener_components_pb2.FilterChain(
                filters=[connection_manager(HTTP_LISTENER, HTTP_LISTENER, chain, connections)]
            )
        )
        yield Whole(HTTP_LISTENER, shell, "filter_chains", ())
    if graph.secure_hosts:
        held = held_back(secure.host for secure in graph.secure_hosts)
        shell = listener_shell(HTTPS_LISTENER, graph.https, held)
        shell.listener_filters.append(tls_inspector())
        parts = [
            Part("chain", secure, partial(_secure_chain, secure, connections), connections)
            for secure in graph.secure_hosts
        ]
        if graph.fallback is not None:
            fallback = graph.fallback
            parts.append(Part("chain", fallback, partial(_fallback_chain, fallback, connections), connections))
        yield Whole(HTTPS_LISTENER, shell, "filter_chains", tuple(parts))


def listener_shell(name: str, address: Address, held: int = 0) -> listener_pb2.Listener:
    """Render a listener without its chains; ``held`` is how many bytes of a request may wait for a check."""
    return listener_pb2.Listener(
        name=name,
        address=socket_address(address.address, address.port),
        per_connection_buffer_limit_bytes=UInt32Value(value=_BUFFER_LIMIT + held),
    )


def tls_inspector() -> listener_components_pb2.ListenerFilter:
    """Render the filter that reads whom a client names in TLS."""
    return listener_components_pb2.ListenerFilter(
        name="envoy.filters.listener.tls_inspector", typed_config=pack(tls_inspector_pb2.TlsInspector())
    )


def _secure_chain(secure: SecureHost, connections: ConnectionSettings) -> listener_components_pb2.FilterChain:
    name = route_name(secure.host.fqdn)
    forwarded = secure.clients.forwarded if secure.clients is not None else None
    tls = tls_context([secure.certificate], secure.limits)
    if secure.clients is not None:
        ask_for_certificates(tls, secure.clients)
    return listener_components_pb2.FilterChain(
        name=name,
        filter_chain_match=listener_components_pb2.FilterChainMatch(server_names=[secure.host.fqdn]),
        filters=[connection_manager(HTTPS_LISTENER, name, chain_of([secure.host]), connections, forwarded)],
        transport_socket=transport_socket(tls),
    )


def _fallback_chain(fallback: Fallback, connections: ConnectionSettings) -> listener_components_pb2.FilterChain:
    """Render the chain of those that name no host in TLS, or none that is served."""
    return listener_components_pb2.FilterChain(
        name=FALLBACK_CHAIN,
        filter_chain_match=listener_components_pb2.FilterChainMatch(transport_protocol="tls"),
        filters=[connection_manager(HTTPS_LISTENER, FALLBACK_ROUTES, chain_of(fallback.hosts), connections)],
        transport_socket=transport_socket(tls_context([fallback.certificate], fallback.limits)),
    )


def transport_socket(tls: tls_pb2.DownstreamTlsContext) -> base_pb2.TransportSocket:
    """Render TLS as what a chain is spoken over."""
    return base_pb2.TransportSocket(name="envoy.transport_sockets.tls", typed_config=pack(tls))


def tls_context(certificates: Iterable[ObjectName], limits: TlsLimits) -> tls_pb2.DownstreamTlsContext:
    """Render TLS with certificates that come over SDS."""
    return tls_pb2.DownstreamTlsContext(
        common_tls_context=tls_pb2.CommonTlsContext(
            alpn_protocols=["h2", "http/1.1"],
            tls_params=common_pb2.TlsParameters(
                tls_minimum_protocol_version=TLS_VERSIONS[limits.minimum],
                tls_maximum_protocol_version=TLS_VERSIONS[limits.maximum],
                cipher_suites=limits.ciphers,
                ecdh_curves=limits.curves,
            ),
            tls_certificate_sds_secret_configs=[
                secret_pb2.SdsSecretConfig(name=str(each), sds_config=FROM_ADS) for each in certificates
            ],
        )
    )


def ask_for_certificates(tls: tls_pb2.DownstreamTlsContext, clients: ClientCertificates) -> None:
    """Add which certificates clients show."""
    trust = common_pb2.CertificateValidationContext.TrustChainVerification
    validation = common_pb2.CertificateValidationContext(
        trust_chain_verification=trust.VERIFY_TRUST_CHAIN if clients.verified else trust.ACCEPT_UNTRUSTED,
        only_verify_leaf_cert_crl=clients.leaf_only,
    )
    if clients.ca is not None:
        validation.trusted_ca.inline_bytes = clients.ca
    if clients.revoked is not None:
        validation.crl.inline_bytes = clients.revoked
    tls.common_tls_context.validation_context.CopyFrom(validation)
    tls.require_client_certificate.value = clients.required


def connection_manager(
    stat_prefix: str, routes: str, chain: Chain, connections: ConnectionSettings, forwarded: Forwarded | None = None
) -> listener_components_pb2.Filter:
    """Render a connection manager: what it logs, normalises and limits is the same for all."""
    manager = _HCM(
        stat_prefix=stat_prefix,
        rds=hcm_pb2.Rds(config_source=FROM_ADS, route_config_name=table_name(routes, chain)),
        http_filters=http_filters(chain),
    )
    manager.MergeFrom(_common_settings(connections, None if chain.natives is None else chain.natives.slots))
    if chain.natives is not None:
        _decide_natively(manager, chain.natives)
    if chain.mcp:
        reads_mcp = chain.natives is not None and chain.natives.reads_mcp
        manager.local_reply_config.mappers.extend(mcp_refusals(reads_mcp=reads_mcp))
    if forwarded is not None:
        # What a client says of its certificate by itself is removed, here and, by default, everywhere else.
        manager.forward_client_cert_details = _HCM.ForwardClientCertDetails.SANITIZE_SET
        manager.set_current_client_cert_details.CopyFrom(_forwarded(forwarded))
    return listener_components_pb2.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=pack(manager)
    )


def _decide_natively(manager: hcm_pb2.HttpConnectionManager, natives: Natives) -> None:
    """Add what Envoy's own decisions need: words for those it denies, and limits that the policy server has too."""
    manager.local_reply_config.CopyFrom(
        local_replies(natives.envoy, natives.denial_format, tokens=bool(natives.tokens))
    )
    manager.max_request_headers_kb.value = _LARGEST_HEADERS
    if natives.certificates:
        # Rules look at all names in a certificate, and Envoy shows them in a header alone. Routes remove it.
        manager.forward_client_cert_details = _HCM.ForwardClientCertDetails.SANITIZE_SET
        manager.set_current_client_cert_details.uri = True
        options = manager.common_http_protocol_options
        if not options.HasField("max_connection_duration"):
            # Envoy looks at a certificate when a connection begins, and never again.
            options.max_connection_duration.CopyFrom(duration(_LONGEST_CONNECTION))


def _forwarded(forwarded: Forwarded) -> hcm_pb2.HttpConnectionManager.SetCurrentClientCertDetails:
    return _HCM.SetCurrentClientCertDetails(
        subject=BoolValue(value=True) if forwarded.subject else None,
        cert=forwarded.certificate,
        chain=forwarded.chain,
        dns=forwarded.dns,
        uri=forwarded.uri,
    )


@lru_cache(maxsize=32)
def _common_settings(connections: ConnectionSettings, slots: int | None) -> hcm_pb2.HttpConnectionManager:
    """Return what all connection managers have in common.

    ``slots`` is how many policies of one target Envoy looks at by itself, if it does that one by one; None is nothing.
    """
    idle, longest = limit(connections.connection_idle), connections.max_connection_duration
    return _HCM(
        codec_type=_HCM.CodecType.AUTO,
        access_log=[_access_log(slots)],
        use_remote_address=BoolValue(value=True),
        xff_num_trusted_hops=connections.trusted_hops,
        # What a route matched must be what the origin reads.
        normalize_path=BoolValue(value=True),
        merge_slashes=True,
        path_with_escaped_slashes_action=_HCM.PathWithEscapedSlashesAction.REJECT_REQUEST,
        request_timeout=limit(connections.request),
        stream_idle_timeout=limit(connections.stream_idle),
        delayed_close_timeout=limit(connections.delayed_close),
        drain_timeout=limit(connections.shutdown_grace_period),
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            idle_timeout=duration(_IDLE) if idle is None else idle,
            # Zero would close connections at once: only the idle timeout and those of requests know it as "never".
            max_connection_duration=limit(longest) if isinstance(longest, After) else None,
            # Some origins read `auth_username` as `auth-username`.
            headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.HeadersWithUnderscoresAction.REJECT_REQUEST,
        ),
        http2_protocol_options=protocol_pb2.Http2ProtocolOptions(
            max_concurrent_streams=UInt32Value(value=100),
            initial_stream_window_size=UInt32Value(value=64 * 1024),
            initial_connection_window_size=UInt32Value(value=1024 * 1024),
        ),
    )


def _access_log(slots: int | None) -> accesslog_pb2.AccessLog:
    """Render the log; where Envoy decides by itself, it says by which policies, and which rule it was."""
    fields = Struct(fields={name: Value(string_value=text) for name, text in ACCESS_LOG.items()})
    if slots is not None:
        found = [DECIDED_BY, *(f"{slot_prefix(number)}{FOUND}" for number in range(slots))]
        decided = {each: Value(string_value=f"%DYNAMIC_METADATA({RBAC_METADATA}:{each})%") for each in found}
        fields.fields["policies"].string_value = _POLICIES
        fields.fields["decided"].struct_value.CopyFrom(Struct(fields=decided))
    log = stream_pb2.StdoutAccessLog(
        log_format=substitution_format_string_pb2.SubstitutionFormatString(json_format=fields)
    )
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.stdout", typed_config=pack(log))
