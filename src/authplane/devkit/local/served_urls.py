"""The URLs that a gateway serves, each with its backend and what authorizes requests there."""

from collections.abc import Iterator
from typing import Final, assert_never

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.hostnames import ANY
from authplane.controlplane.graph.model.match_model import Regex
from authplane.controlplane.graph.model.match_words import condition_words
from authplane.controlplane.graph.model.port_model import PlainPort, Port, SecurePort
from authplane.controlplane.graph.model.route_authorization import (
    Disabled,
    Enforced,
    FailClosed,
    FailOpen,
    RouteAuthorization,
    Shadow,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Forward, Route
from authplane.core.addresses import is_loopback
from authplane.core.values import dataclass

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 (compared, not listened on)
_TARGET: Final = "authplane.target"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedUrl:
    """A URL at which a route forwards requests."""

    url: str
    mcp: bool
    """Whether the backend is an MCP server."""
    details: tuple[str, ...]
    """The backend, what authorizes requests, and what clients must show."""


def served_urls(graph: Graph) -> tuple[ServedUrl, ...]:
    """Return the URLs of all routes that forward requests, MCP servers first; redirects are left out."""
    found = (each for port in graph.ports for each in _port(port))
    return tuple(sorted(dict.fromkeys(found), key=lambda each: not each.mcp))


def _port(port: Port) -> Iterator[ServedUrl]:
    match port:
        case PlainPort(table=table):
            for host in table.hosts:
                yield from _host(host, "http", port, "")
        case SecurePort(chains=chains):
            for chain in chains:
                certificate = chain.clients is not None and chain.clients.required
                for host in chain.table.hosts:
                    yield from _host(host, "https", port, "client certificate required" if certificate else "")
        case _:
            assert_never(port)


def _host(host: Host, scheme: str, port: Port, clients: str) -> Iterator[ServedUrl]:
    name = _local_name(port.where.address, scheme) if host.name == ANY else host.name
    number = "" if port.where.port == _DEFAULT_PORTS[scheme] else f":{port.where.port}"
    for route in host.routes:
        if isinstance(route.action, Forward):
            mcp = any(target.mcp for target in route.action.targets)
            backend = ", ".join(_backends(route.action, route))
            details = (f"MCP server {backend}" if mcp else backend, *_authorizations(route), clients)
            yield ServedUrl(
                url=f"{scheme}://{name}{number}{_path(route)}", mcp=mcp, details=tuple(filter(None, details))
            )


def _local_name(address: str, scheme: str) -> str:
    """Return the name under which this machine reaches an address; certificates of this machine have a name."""
    if address in _EVERYWHERE or (scheme == "https" and is_loopback(address)):
        return "localhost"
    return f"[{address}]" if ":" in address else address


def _path(route: Route) -> str:
    path = route.match.path
    text = f" with paths that match {path.path}" if isinstance(path, Regex) else path.path
    conditions = " and ".join(condition_words(route.match))
    return f"{text} if {conditions}" if conditions else text


def _backends(forward: Forward, route: Route) -> Iterator[str]:
    authorizations = route.authorizations
    for index, target in enumerate(forward.targets):
        given = authorizations[index] if len(authorizations) == len(forward.targets) else authorizations[0]
        named = dict(given.context).get(_TARGET) if isinstance(given, Enforced) else None
        if named is not None:
            yield named.partition("/")[2]
        else:
            yield "no backend" if target.cluster is None else _service(target.cluster)


def _service(cluster: str) -> str:
    """Return the Service and the port of a cluster: ``shop/web:80``."""
    name, _, port = cluster.removeprefix("service/").partition("#")[0].rpartition("/")
    return f"{name}:{port}" if name else cluster


def _authorizations(route: Route) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_authorization, route.authorizations)))


def _authorization(given: RouteAuthorization) -> str:
    match given:
        case Unprotected():
            return "unprotected"
        case Disabled():
            return "authorization disabled"
        case Enforced(service=service):
            who = "AccessPolicies" if service.by_policies else service.cluster.removeprefix("extension/")
            match service.on_failure:
                case FailClosed():
                    return f"checked by {who}"
                case FailOpen():
                    return f"checked by {who}, fails open"
                case Shadow():
                    return f"checked by {who}, not enforced"
                case _:
                    assert_never(service.on_failure)
        case _:
            assert_never(given)
