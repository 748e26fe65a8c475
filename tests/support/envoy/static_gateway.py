"""An Envoy between a client and an echoing origin, with one authorization filter."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
from tests.support.eventually import START_LIMIT

from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import EnvoySettings, run_envoy
from authplane.runtime.servers.listen import UnixAddress

TYPES: Final = "type.googleapis.com/envoy.extensions"
H2: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def _cluster(name: str, socket: Path, *, h2: bool) -> dict[str, Any]:
    options = {
        "@type": f"type.googleapis.com/{H2}",
        "explicit_http_config": {"http2_protocol_options": {}} if h2 else {"http_protocol_options": {}},
    }
    endpoint = {"endpoint": {"address": {"pipe": {"path": str(socket)}}}}
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "typed_extension_protocol_options": {H2: options},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]},
    }


GRPC: Final[Mapping[str, Any]] = {
    "grpc_service": {"timeout": "1s", "envoy_grpc": {"cluster_name": "authz"}},
}


def documented(language: str) -> str:
    """Return the configuration that the page about HTTP checks shows."""
    page = Path(__file__).parents[3] / "docs" / "how-to" / "answer-http-checks.md"
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return str(found)


def _config(folder: Path, authz: Mapping[str, Any], *, h2: bool) -> str:
    asking = {"@type": f"{TYPES}.filters.http.ext_authz.v3.ExtAuthz", "transport_api_version": "V3", **authz}
    routes = [{"match": {"prefix": "/"}, "route": {"cluster": "origin"}}]
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "route_config": {"virtual_hosts": [{"name": "web", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {"name": "authz", "typed_config": asking},
            {"name": "router", "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"}},
        ],
    }
    listener = {
        "name": "web",
        "address": {"pipe": {"path": str(folder / "web.sock")}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    clusters = [
        _cluster("authz", folder / "authz.sock", h2=h2),
        _cluster("origin", folder / "origin.sock", h2=False),
    ]
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}})


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def envoy_gateway(folder: Path, authz: Mapping[str, Any]) -> AsyncGenerator[httpx2.AsyncClient]:
    """Run Envoy and the origin; who listens on ``authz.sock`` is up to the test."""
    config = _config(folder, authz, h2="grpc_service" in authz)
    settings = EnvoySettings(concurrency=1, log_level="error")
    transport = httpx2.AsyncHTTPTransport(uds=str(folder / "web.sock"))
    async with (
        serve_echo(UnixAddress(path=str(folder / "origin.sock"))),
        run_envoy(config, sink=_ignore, settings=settings) as envoy,
        httpx2.AsyncClient(transport=transport, base_url="http://shop.test") as client,
    ):
        await envoy.ready(limit=START_LIMIT)
        yield client
