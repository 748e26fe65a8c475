"""Listeners: a connection manager for all plain hosts, one for each host behind TLS."""

from datetime import timedelta
from functools import cache, lru_cache
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

from authplane.graph.model import Address, Graph, SecureHost
from authplane.graph.programming import HTTP_LISTENER, HTTPS_LISTENER, route_name
from authplane.render.filters import Chain, chain_of, http_filters
from authplane.render.routes import METADATA
from authplane.render.wrap import FROM_ADS, REMEMBERED_HOSTS, duration, pack, socket_address

_BUFFER_LIMIT: Final = 32 * 1024
_IDLE: Final = timedelta(minutes=5)
_HCM: Final = hcm_pb2.HttpConnectionManager
_TLS_VERSIONS: Final = {
    "1.2": common_pb2.TlsParameters.TlsProtocol.TLSv1_2,
    "1.3": common_pb2.TlsParameters.TlsProtocol.TLSv1_3,
}
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


def render_listeners(graph: Graph) -> list[listener_pb2.Listener]:
    """Render the listeners that have something to serve."""
    listeners = []
    if graph.plain_hosts:
        manager = _connection_manager(HTTP_LISTENER, HTTP_LISTENER, None)
        chains = [listener_components_pb2.FilterChain(filters=[manager])]
        listeners.append(_listener(HTTP_LISTENER, graph.http, chains))
    if graph.secure_hosts:
        listener = _listener(HTTPS_LISTENER, graph.https, [_secure_chain(host) for host in graph.secure_hosts])
        listener.listener_filters.append(
            listener_components_pb2.ListenerFilter(
                name="envoy.filters.listener.tls_inspector", typed_config=pack(tls_inspector_pb2.TlsInspector())
            )
        )
        listeners.append(listener)
    return listeners


def _listener(name: str, address: Address, chains: list[listener_components_pb2.FilterChain]) -> listener_pb2.Listener:
    return listener_pb2.Listener(
        name=name,
        address=socket_address(address.address, address.port),
        filter_chains=chains,
        per_connection_buffer_limit_bytes=UInt32Value(value=_BUFFER_LIMIT),
    )


# A host that did not change is not rendered again: with a thousand hosts that is most of what a change costs.
@lru_cache(maxsize=REMEMBERED_HOSTS)
def _secure_chain(secure: SecureHost) -> listener_components_pb2.FilterChain:
    name = route_name(secure.host.fqdn)
    return listener_components_pb2.FilterChain(
        name=name,
        filter_chain_match=listener_components_pb2.FilterChainMatch(server_names=[secure.host.fqdn]),
        filters=[_connection_manager(HTTPS_LISTENER, name, chain_of(secure))],
        transport_socket=base_pb2.TransportSocket(
            name="envoy.transport_sockets.tls", typed_config=pack(_tls_context(secure))
        ),
    )


def _tls_context(secure: SecureHost) -> tls_pb2.DownstreamTlsContext:
    return tls_pb2.DownstreamTlsContext(
        common_tls_context=tls_pb2.CommonTlsContext(
            alpn_protocols=["h2", "http/1.1"],
            tls_params=common_pb2.TlsParameters(
                tls_minimum_protocol_version=_TLS_VERSIONS[secure.minimum_tls],
                tls_maximum_protocol_version=_TLS_VERSIONS["1.3"],
            ),
            tls_certificate_sds_secret_configs=[
                secret_pb2.SdsSecretConfig(name=str(secure.certificate), sds_config=FROM_ADS)
            ],
        )
    )


def _connection_manager(stat_prefix: str, routes: str, chain: Chain) -> listener_components_pb2.Filter:
    manager = _HCM(
        stat_prefix=stat_prefix,
        rds=hcm_pb2.Rds(config_source=FROM_ADS, route_config_name=routes),
        http_filters=http_filters(chain),
    )
    manager.MergeFrom(_common_settings())
    return listener_components_pb2.Filter(
        name="envoy.filters.network.http_connection_manager", typed_config=pack(manager)
    )


@cache
def _common_settings() -> hcm_pb2.HttpConnectionManager:
    """Return what all connection managers have in common."""
    return _HCM(
        codec_type=_HCM.CodecType.AUTO,
        access_log=[_access_log()],
        use_remote_address=BoolValue(value=True),
        # What a route matched must be what the origin reads.
        normalize_path=BoolValue(value=True),
        merge_slashes=True,
        path_with_escaped_slashes_action=_HCM.PathWithEscapedSlashesAction.REJECT_REQUEST,
        common_http_protocol_options=protocol_pb2.HttpProtocolOptions(
            idle_timeout=duration(_IDLE),
            # Some origins read `auth_username` as `auth-username`.
            headers_with_underscores_action=protocol_pb2.HttpProtocolOptions.HeadersWithUnderscoresAction.REJECT_REQUEST,
        ),
        http2_protocol_options=protocol_pb2.Http2ProtocolOptions(
            max_concurrent_streams=UInt32Value(value=100),
            initial_stream_window_size=UInt32Value(value=64 * 1024),
            initial_connection_window_size=UInt32Value(value=1024 * 1024),
        ),
    )


def _access_log() -> accesslog_pb2.AccessLog:
    fields = Struct(fields={name: Value(string_value=text) for name, text in ACCESS_LOG.items()})
    log = stream_pb2.StdoutAccessLog(
        log_format=substitution_format_string_pb2.SubstitutionFormatString(json_format=fields)
    )
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.stdout", typed_config=pack(log))
