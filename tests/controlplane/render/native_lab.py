"""A real Envoy with the filters that decide natively, told what to do by hand: to learn what Envoy does with it.

Behind the routes are listeners of the same Envoy: an origin that answers 200 and shows which credentials reached it,
and an authorization service that answers 418 to whoever is sent to it.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
from tests.controlplane.render.native_names import (
    ASK,
    ASKED,
    DECIDE,
    FILTERS,
    HEADERS,
    JWT,
    READER,
    SHADOW,
    TYPES,
    Json,
)
from tests.controlplane.render.native_rules import asking
from tests.support.envoy.releases import Version
from tests.support.eventually import START_LIMIT
from tests.support.mcp.lua_reader import lua_filter

from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import Envoy, run_envoy


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A path below the host, and what is said for it."""

    name: str
    route: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    """``typed_per_filter_config`` of the route."""
    cluster: Mapping[str, Json] = field(default_factory=lambda: MappingProxyType({}))
    """``typed_per_filter_config`` of the weighted cluster."""
    remove: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Of the route, in the namespace authplane."""


def _route(place: Place) -> Json:
    cluster = {"name": "origin", "weight": 1, "typed_per_filter_config": dict(place.cluster)}
    return {
        "match": {"path_separated_prefix": f"/{place.name}"},
        "route": {"weighted_clusters": {"clusters": [cluster]}},
        "typed_per_filter_config": dict(place.route),
        "request_headers_to_remove": list(place.remove),
        "metadata": {"filter_metadata": {"authplane": dict(place.metadata)}},
    }


def _manager(name: str, http_filters: Sequence[Json], routes: Sequence[Json], **more: Any) -> Json:
    router = {"name": "router", "typed_config": {"@type": f"{FILTERS}.router.v3.Router"}}
    return {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {"virtual_hosts": [{"name": "lab", "domains": ["*"], "routes": list(routes)}]},
        "http_filters": [*http_filters, router],
        **more,
    }


def _listener(name: str, folder: Path, manager: Json) -> Json:
    return {
        "name": name,
        "address": {"pipe": {"path": str(folder / name)}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _cluster(name: str, folder: Path) -> Json:
    endpoint = {"address": {"pipe": {"path": str(folder / name)}}}
    load = {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]}
    return {"name": name, "type": "STATIC", "load_assignment": load}


def shown(name: str, format_: str) -> Json:
    """Return a header that tells something."""
    return {"header": {"key": name, "value": format_}, "keep_empty_value": True}


def bootstrap(
    places: Iterable[Place],
    folder: Path,
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
    replies: Json | None = None,
) -> str:
    """Return a configuration; ``headers`` are added to what the origin says, ``replies`` are those of Envoy itself."""
    discovered = {
        "config_source": {"path_config_source": {"path": str(folder / "tokens.json")}, "resource_api_version": "V3"},
        "type_urls": [f"{FILTERS}.jwt_authn.v3.JwtAuthentication"],
    }
    filters: list[Json] = [
        {"name": JWT, "config_discovery": discovered},
        {"name": READER, "typed_config": lua_filter()},
        {"name": SHADOW, "typed_config": {"@type": f"{FILTERS}.rbac.v3.RBAC"}},
        {"name": DECIDE, "typed_config": {"@type": f"{FILTERS}.rbac.v3.RBAC", "rules": {}}},
        {"name": ASK, "typed_config": asking()},
    ]
    own = {"local_reply_config": replies} if replies else {}
    manager = _manager("front", filters, [_route(each) for each in places], **own)
    hosts = manager["route_config"]["virtual_hosts"][0]
    hosts["response_headers_to_add"] = [shown(*each) for each in headers.items()]
    echo = {"match": {"prefix": "/"}, "direct_response": {"status": 200},
            "response_headers_to_add": [shown("x-reached", "%REQ(authorization)%")]}  # fmt: skip
    asked = {"match": {"prefix": "/"}, "direct_response": {"status": ASKED}}
    listeners = [
        _listener("front", folder, manager),
        _listener("origin", folder, _manager("origin", [], [echo])),
        _listener("ask", folder, _manager("ask", [], [asked])),
    ]
    clusters = [_cluster("origin", folder), _cluster("ask", folder)]
    return json.dumps({"node": {"id": "lab", "cluster": "lab"},
                       "static_resources": {"listeners": listeners, "clusters": clusters}})  # fmt: skip


def publish(folder: Path, config: Json, *, version: str = "1") -> None:
    """Give Envoy the configuration of the filter for tokens; a moved file is what it watches for."""
    kind = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
    resource = {"@type": kind, "name": JWT, "typed_config": config}
    new = folder / "tokens.new"
    new.write_text(json.dumps({"version_info": version, "resources": [resource]}), encoding="utf-8")
    new.rename(folder / "tokens.json")


@dataclass(frozen=True, slots=True)
class Lab:
    """A running Envoy."""

    envoy: Envoy
    client: httpx2.AsyncClient
    scheme: str = "http"

    async def send(
        self, path: str, *, method: str = "GET", headers: Iterable[tuple[str, str]] = (), body: str | bytes = b""
    ) -> httpx2.Response:
        """Send a request to a place."""
        return await self.client.request(method, f"{self.scheme}://lab/{path}", headers=list(headers), content=body)

    async def call(self, path: str, body: str | bytes, *headers: tuple[str, str]) -> httpx2.Response:
        """Send an MCP message to a place."""
        return await self.send(path, method="POST", headers=(*HEADERS, *headers), body=body)


async def _ignore(_line: Line) -> None:
    pass


@asynccontextmanager
async def lab(config: str, folder: Path, version: Version) -> AsyncGenerator[Lab]:
    """Run Envoy with a configuration of `bootstrap`."""
    transport = httpx2.AsyncHTTPTransport(uds=str(folder / "front"))
    async with (
        run_envoy(config, sink=_ignore, settings=version.settings()) as envoy,
        httpx2.AsyncClient(transport=transport, timeout=20) as client,
    ):
        await envoy.ready(limit=START_LIMIT)
        yield Lab(envoy, client)
