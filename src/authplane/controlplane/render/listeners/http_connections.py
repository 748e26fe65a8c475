"""Connection managers: what they log, normalise and limit is the same for all."""

from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Final

from envoy.config.core.v3 import protocol_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf.wrappers_pb2 import BoolValue, UInt32Value

from authplane.controlplane.graph.model.graph_model import ConnectionSettings
from authplane.controlplane.graph.model.port_model import Forwarded
from authplane.controlplane.render.envoy_pieces import FROM_ADS, duration, limit, pack
from authplane.controlplane.render.listeners.access_logs import NativeFields, access_logs, native_fields
from authplane.controlplane.render.listeners.filter_chain import Chain, http_filters, table_name
from authplane.controlplane.render.native.denial_replies import local_replies, mcp_refusals
from authplane.controlplane.render.native.native_filters import Natives
from authplane.core.timeouts import After, UseDefault

_LONGEST_REQUEST: Final = After(timedelta(seconds=60))
_IDLE: Final = timedelta(minutes=5)
_LONGEST_CONNECTION: Final = timedelta(hours=1)
_LARGEST_HEADERS: Final = 32
"""In KiB: expressions read no larger ones."""
_HCM: Final = hcm_pb2.HttpConnectionManager


def connection_manager(
    stat_prefix: str, routes: str, chain: Chain, connections: ConnectionSettings, forwarded: Forwarded | None = None
) -> listener_components_pb2.Filter:
    """Render a connection manager: what it logs, normalises and limits is the same for all."""
    manager = _HCM(
        stat_prefix=stat_prefix,
        rds=hcm_pb2.Rds(config_source=FROM_ADS, route_config_name=table_name(routes, chain)),
        http_filters=http_filters(chain),
    )
    logged = None if chain.natives is None else native_fields(chain.natives)
    manager.MergeFrom(_common_settings(_with_limit(connections, chain), logged))
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


def _with_limit(connections: ConnectionSettings, chain: Chain) -> ConnectionSettings:
    """Limit the time in which requests must arrive if some are for MCP servers, whose streams may be idle."""
    unbounded = chain.mcp and isinstance(connections.request, UseDefault)
    return replace(connections, request=_LONGEST_REQUEST) if unbounded else connections


def _decide_natively(manager: hcm_pb2.HttpConnectionManager, natives: Natives) -> None:
    """Add what Envoy's own decisions need: words for those it denies, and limits that the policy server has too."""
    manager.local_reply_config.CopyFrom(local_replies(natives.denial_format, tokens=natives.wants_tokens))
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


# Each host behind TLS has them: 98 µs to render, 0.9 µs to find here. They depend on the settings of the gateway alone.
@lru_cache(maxsize=32)
def _common_settings(connections: ConnectionSettings, logged: NativeFields | None) -> hcm_pb2.HttpConnectionManager:
    """Return what all connection managers have in common; ``logged`` is None where Envoy decides nothing natively."""
    idle, longest = limit(connections.connection_idle), connections.max_connection_duration
    return _HCM(
        codec_type=_HCM.CodecType.AUTO,
        access_log=access_logs(logged),
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
