"""The configuration of a pyvoy worker's Envoy: limits, TLS, and the filter that runs our application."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, assert_never

from authplane.authserver.plan.server_plan import FrontLimits
from authplane.runtime.servers.handshake_words import HANDSHAKE_FAILED
from authplane.runtime.servers.listen import Address, ServerTls, TcpAddress, UnixAddress

Json: TypeAlias = dict[str, Any]

STATS: Final = "checks"
"""The prefix of the front's counters."""
CERTIFICATE: Final = "certificate"
CLIENTS: Final = "clients"
"""The names of the secrets: the server's certificate, and the CA of its clients."""

_TYPE: Final = "type.googleapis.com/"
_SECRET: Final = f"{_TYPE}envoy.extensions.transport_sockets.tls.v3.Secret"
_WINDOW: Final = 1024 * 1024
_ANYTHING: Final = {"safe_regex": {"regex": ".*"}}

_NEXT: Final = "%[89ABab][0-9A-Fa-f]"
"""An escape of a byte that continues a character."""
_ESCAPED: Final = "|".join(
    (
        "%[0-7][0-9A-Fa-f]",
        f"%(?:[Cc][2-9A-Fa-f]|[Dd][0-9A-Fa-f]){_NEXT}",
        f"%[Ee](?:0%[ABab][0-9A-Fa-f]|[1-9A-Ca-cEFef]{_NEXT}|[Dd]%[89][0-9A-Fa-f]){_NEXT}",
        f"%[Ff](?:0%[9ABab][0-9A-Fa-f]|[1-3]{_NEXT}|4%8[0-9A-Fa-f]){_NEXT}{_NEXT}",
    )
)
READABLE: Final = f"(?:[!-$&->@-~]|{_ESCAPED})*(?:\\?[!-~]*)?"
"""Paths that pyvoy can read: what is escaped is UTF-8. It never answers a request with another one."""


def render_worker(
    filters: list[Json], address: Address, limits: FrontLimits, secrets: Mapping[str, Path] | None
) -> Json:
    """Return the configuration of a worker's Envoy; ``secrets`` names the files of its secrets, without it no TLS."""
    chain: Json = {"filters": [_typed("envoy.filters.network.http_connection_manager", _manager(filters, limits))]}
    if secrets is not None:
        chain["transport_socket"] = _typed("envoy.transport_sockets.tls", _tls(secrets))
    listener: Json = {
        "name": STATS,
        **_address(address),
        "filter_chains": [chain],
        "per_connection_buffer_limit_bytes": _WINDOW,
    }
    if secrets is not None:
        listener["access_log"] = [_failed_handshakes()]
    most: Json = {
        "@type": f"{_TYPE}envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
        "max_active_downstream_connections": limits.connections,
    }
    monitors = [_typed("envoy.resource_monitors.global_downstream_max_connections", most)]
    return {
        # Envoy wants a name before it reads secrets from files.
        "node": {"id": STATS, "cluster": STATS},
        "static_resources": {"listeners": [listener]},
        "overload_manager": {"resource_monitors": monitors},
        # The pattern of readable paths is longer than what Envoy takes by default.
        "layered_runtime": {"layers": [{"name": STATS, "static_layer": {"re2.max_program_size.error_level": 1000}}]},
    }


def render_secrets(tls: ServerTls) -> dict[str, str]:
    """Return the files, by the secret's name, from which Envoy reads its certificate and the CA of its clients.

    They contain the certificates, not paths of other files, so that Envoy never combines a certificate with another
    certificate's key.
    """
    shown = {"certificate_chain": _inline(tls.certificate), "private_key": _inline(tls.key.reveal())}
    files = {CERTIFICATE: _secret(CERTIFICATE, {"tls_certificate": shown})}
    if tls.client_ca is not None:
        files[CLIENTS] = _secret(CLIENTS, {"validation_context": {"trusted_ca": _inline(tls.client_ca)}})
    return files


def _manager(filters: list[Json], limits: FrontLimits) -> Json:
    return {
        "@type": f"{_TYPE}envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": STATS,
        "route_config": {"virtual_hosts": [{"name": STATS, "domains": ["*"]}]},
        "http_filters": filters,
        # nginx speaks HTTP/1.0 by default. Upgrades are ignored: the body of such a request never ends, so it would
        # get no answer.
        "http_protocol_options": {"accept_http_10": True, "ignore_http_11_upgrade": [_ANYTHING]},
        "http2_protocol_options": {
            "max_concurrent_streams": limits.streams,
            "initial_stream_window_size": _WINDOW,
            "initial_connection_window_size": 4 * _WINDOW,
            "connection_keepalive": {"interval": "60s", "timeout": "20s"},
        },
        "common_http_protocol_options": _common(limits),
        "max_request_headers_kb": limits.head_kib,
        "request_timeout": f"{limits.patience}s",
        "request_headers_timeout": f"{limits.patience}s",
        "stream_idle_timeout": f"{limits.idle}s",
        # The caller's headers and path are what is judged: they stay as they came.
        "generate_request_id": False,
        "skip_xff_append": True,
        "normalize_path": False,
        "path_with_escaped_slashes_action": "KEEP_UNCHANGED",
        "server_header_transformation": "PASS_THROUGH",
    }


def _common(limits: FrontLimits) -> Json:
    common: Json = {"max_headers_count": limits.headers, "idle_timeout": "3600s"}
    return common if limits.calls is None else {**common, "max_requests_per_connection": limits.calls}


def only_readable_paths() -> Json:
    """Return a filter that refuses other paths with 403: a proxy that waits in vain for an answer may let a call pass.

    It costs a few microseconds. gRPC checks do without, since no client of the proxy chooses their path.
    """
    readable = {"header": {"name": ":path", "string_match": {"safe_regex": {"regex": READABLE}}}}
    rules = {
        "@type": f"{_TYPE}envoy.extensions.filters.http.rbac.v3.RBAC",
        "rules": {"policies": {"readable": {"permissions": [readable], "principals": [{"any": True}]}}},
    }
    return _typed("envoy.filters.http.rbac", rules)


def _address(address: Address) -> Json:
    match address:
        case TcpAddress(host=host, port=port):
            socket: Json = {"address": host, "port_value": port}
            if host == "::":
                socket["ipv4_compat"] = True
            return {"address": {"socket_address": socket}, "enable_reuse_port": True}
        case UnixAddress(path=path):
            return {"address": {"pipe": {"path": path, "mode": 0o600}}, "enable_reuse_port": False}
        case _:
            assert_never(address)


def _tls(secrets: Mapping[str, Path]) -> Json:
    common: Json = {
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
        "tls_certificate_sds_secret_configs": [_from_file(CERTIFICATE, secrets)],
    }
    if CLIENTS in secrets:
        common["validation_context_sds_secret_config"] = _from_file(CLIENTS, secrets)
    return {
        "@type": f"{_TYPE}envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": common,
        "require_client_certificate": CLIENTS in secrets,
    }


def _failed_handshakes() -> Json:
    """Return a log of connections whose TLS handshake failed, in the form of our own log lines, on standard error.

    Nothing else says why a proxy without a certificate of the CA gets no answer.
    """
    failed = {
        "@type": f"{_TYPE}envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter",
        "expression": "has(connection.transport_failure_reason)",
    }
    line = {
        "peer": "%DOWNSTREAM_REMOTE_ADDRESS%",
        "why": "%DOWNSTREAM_TRANSPORT_FAILURE_REASON%",
        "event": HANDSHAKE_FAILED,
        "level": "warning",
        "timestamp": "%START_TIME%",
    }
    log = _typed(
        "envoy.access_loggers.stderr",
        {
            "@type": f"{_TYPE}envoy.extensions.access_loggers.stream.v3.StderrAccessLog",
            "log_format": {"json_format": line},
        },
    )
    return {**log, "filter": {"extension_filter": _typed("envoy.access_loggers.extension_filters.cel", failed)}}


def _from_file(name: str, secrets: Mapping[str, Path]) -> Json:
    source = {"path_config_source": {"path": str(secrets[name])}, "resource_api_version": "V3"}
    return {"name": name, "sds_config": source}


def _secret(name: str, content: Json) -> str:
    return json.dumps({"resources": [{"@type": _SECRET, "name": name, **content}]})


def _inline(content: bytes) -> Json:
    return {"inline_bytes": base64.b64encode(content).decode("ascii")}


def _typed(name: str, config: Json) -> Json:
    return {"name": name, "typed_config": config}
