"""Whether proxies accepted the configuration of a resource."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import Host, checks_of, forwards_of
from authplane.controlplane.graph.model.port_model import PlainPort, Port
from authplane.controlplane.graph.model.upstreams import ExtensionCluster, Plaintext
from authplane.core.names import ObjectName, Ref
from authplane.core.values import dataclass
from authplane.xds.server.served_types import TypeUrl, XdsName

HTTP_LISTENER = "ingress_http"
HTTPS_LISTENER = "ingress_https"
FALLBACK_CHAIN = "fallback-certificate"
FALLBACK_ROUTES = "ingress_fallbackcert"
FILTERS = "#"
"""Separates, in the name of a route table, the name and the filters that the table is made for."""
TOKENS: Final = "authplane/tokens"
"""The filter of Gateways that verifies tokens; a resource of this name configures it for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswers:
    """The answers of all connected gRPC servers."""

    asked: frozenset[XdsName] = frozenset()
    """What at least one of them subscribes to."""
    pending: frozenset[XdsName] = frozenset()
    refused: Mapping[XdsName, str] = field(default_factory=lambda: MappingProxyType({}))


NO_SERVERS: Final = ServerAnswers()


@dataclass(frozen=True, slots=True)
class NotServed:
    """No control plane runs, so there are no answers of proxies."""


@dataclass(frozen=True, slots=True)
class NoProxy:
    """No proxy is connected, so there are no answers."""

    servers: ServerAnswers = NO_SERVERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answers of all connected proxies; they accepted what is in neither field."""

    pending: frozenset[XdsName] = frozenset()
    refused: Mapping[XdsName, str] = field(default_factory=lambda: MappingProxyType({}))
    """With the message of the proxy that rejected it."""
    servers: ServerAnswers = NO_SERVERS


Programming: TypeAlias = NotServed | NoProxy | Answered


def route_name(fqdn: str) -> str:
    """Name the route configuration of a virtual host behind TLS."""
    return f"https/{fqdn}"


def without_filters(name: XdsName) -> XdsName:
    """Name a resource as `xds_names` does, whatever filters a route table is made for."""
    type_url, text = name
    return (type_url, text.partition(FILTERS)[0]) if type_url is TypeUrl.ROUTE else name


def gateway_listener(port: int) -> str:
    """Name the listener of a port of Gateways, and for HTTP its route configuration."""
    return f"gateway/{port}"


def gateway_routes(port: int, listener: str) -> str:
    """Name the route configuration of a Gateway's listener behind TLS."""
    return f"{gateway_listener(port)}/{listener}"


def xds_names(graph: Graph) -> Mapping[Ref, frozenset[XdsName]]:
    """Return the xDS names of each ExtensionService and HTTPProxy."""
    names: dict[Ref, set[XdsName]] = {}
    for cluster in graph.clusters:
        if isinstance(cluster, ExtensionCluster):
            names[_ref("ExtensionService", cluster.object_name)] = _cluster_names(cluster.name) | _shown(cluster)
    for port in graph.proxies:
        _note(names, port)
    return {ref: frozenset(own) for ref, own in names.items()}


def _shown(cluster: ExtensionCluster) -> set[XdsName]:
    shown = None if isinstance(cluster.tls, Plaintext) else cluster.tls.client_certificate
    return set() if shown is None else {(TypeUrl.SECRET, str(shown))}


def _note(names: dict[Ref, set[XdsName]], port: Port) -> None:
    """Count what the hosts of a port became to their roots, and to the HTTPProxies that those include."""
    shown = [()] if isinstance(port, PlainPort) else [chain.certificates for chain in port.chains]
    for table, certificates in zip(port.tables, shown, strict=True):
        where = {(TypeUrl.LISTENER, port.name), (TypeUrl.ROUTE, table.name)}
        where |= {(TypeUrl.SECRET, str(each)) for each in certificates}
        for host in table.hosts:
            became = where | _clusters(host)
            for proxy in host.proxies:
                names.setdefault(_ref("HTTPProxy", proxy), set()).update(became)


def _clusters(host: Host) -> set[XdsName]:
    """Name where the requests of a host are sent, and their checks."""
    clusters = {cluster for forward in forwards_of([host]) for cluster in forward.clusters}
    clusters |= {check.service.cluster for check in checks_of([host])}
    return {name for cluster in clusters for name in _cluster_names(cluster)}


def _cluster_names(cluster: str) -> set[XdsName]:
    return {(TypeUrl.CLUSTER, cluster), (TypeUrl.ENDPOINT, cluster)}


def _ref(kind: str, name: ObjectName) -> Ref:
    return Ref(kind, name.namespace, name.name)
