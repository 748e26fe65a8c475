"""An Envoy with the two filters that read for rules, jwt_authn and the reader of messages, and without rules."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format
from tests.support.ports import free_port

from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.native_filters import READER, message_reader
from authplane.devkit.identities.signing import SigningKey
from authplane.devkit.local.dev_folder import read_signing_key
from authplane.devkit.local.dev_issuer import RunningIssuer
from authplane.runtime.servers.listen import TcpAddress
from authplane.runtime.wait_until_listening import reachable
from bench.native_site import TYPES, Ports, Site, envoy, listener
from bench.processes import started_here

_JWT: Final = "envoy.filters.http.jwt_authn"
_MARK: Final = "%DYNAMIC_METADATA(authplane.mcp:message:method)%"
MARK: Final = "x-method"
"""The header of ``/marked``'s reply that repeats what the reader found."""
MOST_BYTES: Final = 1024 * 1024
_ISSUED: Final = "issued"


@asynccontextmanager
async def readers(folder: Path, upstream: int, issuer: RunningIssuer, binary: Path) -> AsyncGenerator[Site]:
    """Run it: no filter reads ``/open``, the reader reads ``/tools`` and ``/marked``, and jwt_authn ``/claims`` too."""
    ports = Ports(free_port(), 0, 0)
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "readers",
        "http_filters": [
            {"name": _JWT, "typed_config": _jwt_authn(issuer)},
            {"name": READER, "typed_config": json_format.MessageToDict(pack(message_reader(MOST_BYTES)))},
            {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}},
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
            upstream_route("/open", _JWT, READER), upstream_route("/tools", _JWT), upstream_route("/claims"),
            upstream_route("/marked", _JWT) | {"response_headers_to_add": [{"header": {"key": MARK, "value": _MARK}}]},
        ]}]},
    }  # fmt: skip
    config = {
        "static_resources": {"listeners": [listener(ports.plain, manager)], "clusters": [upstream_cluster(upstream)]}
    }
    before = started_here()
    async with envoy(json.dumps(config), folder / "readers.json", binary=binary):
        await reachable(TcpAddress(host="127.0.0.1", port=ports.plain), limit=20)
        yield Site(ports, started_here() - before, frozenset())


def _jwt_authn(issuer: RunningIssuer) -> dict[str, Any]:
    keys = SigningKey.of(read_signing_key(issuer.folder)).key_set().decode()
    provider = {
        "issuer": issuer.url,
        "local_jwks": {"inline_string": keys},
        "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
        "payload_in_metadata": _ISSUED,
        "jwt_cache_config": {"jwt_cache_size": 1000, "jwt_max_token_size": 16384},
    }
    return {
        "@type": f"{TYPES}.filters.http.jwt_authn.v3.JwtAuthentication",
        "providers": {_ISSUED: provider},
        "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": _ISSUED}}],
    }


def upstream_route(prefix: str, *without: str) -> dict[str, Any]:
    """Return a route to the server behind the gateway, without these filters."""
    off = {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "disabled": True}
    action = {"cluster": "upstream", "timeout": "0s"}
    return {"match": {"prefix": prefix}, "route": action, "typed_per_filter_config": dict.fromkeys(without, off)}


def upstream_cluster(port: int) -> dict[str, Any]:
    """Return the server behind the gateway, over HTTP/2."""
    options = f"{TYPES}.upstreams.http.v3.HttpProtocolOptions"
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return {
        "name": "upstream",
        "connect_timeout": "5s",
        "load_assignment": {
            "cluster_name": "upstream",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": options, "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
    }  # fmt: skip
