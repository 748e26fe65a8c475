"""Whether proxies accepted what a resource became."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from authplane.base.names import ObjectName, Ref
from authplane.graph.model import ExtensionCluster, Forward, Graph, Host
from authplane.xds.types import TypeUrl

XdsName: TypeAlias = tuple[TypeUrl, str]
"""A type and the name of a resource of that type."""

HTTP_LISTENER = "ingress_http"
HTTPS_LISTENER = "ingress_https"


@dataclass(frozen=True, slots=True)
class NoProxy:
    """No proxy is connected, so nobody has said anything."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A proxy is connected and has not answered for all of the present configuration."""


@dataclass(frozen=True, slots=True)
class Answered:
    """Every connected proxy has answered; what it refused is listed with its words."""

    refused: Mapping[XdsName, str]


Programming: TypeAlias = NoProxy | Pending | Answered


def route_name(fqdn: str) -> str:
    """Name the route configuration of a virtual host behind TLS."""
    return f"https/{fqdn}"


def xds_names(graph: Graph) -> Mapping[Ref, frozenset[XdsName]]:
    """Return what each ExtensionService and HTTPProxy became."""
    names: dict[Ref, set[XdsName]] = {}
    for cluster in graph.clusters:
        if isinstance(cluster, ExtensionCluster):
            names[_ref("ExtensionService", cluster.object_name)] = _cluster_names(cluster.name)
    for host in graph.plain_hosts:
        own = names.setdefault(_ref("HTTPProxy", host.proxy), set())
        own |= {(TypeUrl.LISTENER, HTTP_LISTENER), (TypeUrl.ROUTE, HTTP_LISTENER)} | _forward_names(host)
    for secure in graph.secure_hosts:
        own = names.setdefault(_ref("HTTPProxy", secure.host.proxy), set())
        own |= {
            (TypeUrl.LISTENER, HTTPS_LISTENER),
            (TypeUrl.ROUTE, route_name(secure.host.fqdn)),
            (TypeUrl.SECRET, str(secure.certificate)),
        }
        own |= _forward_names(secure.host)
        if secure.authorization is not None:
            own |= _cluster_names(secure.authorization.cluster)
    return {ref: frozenset(own) for ref, own in names.items()}


def _forward_names(host: Host) -> set[XdsName]:
    clusters = {
        target.cluster for route in host.routes if isinstance(route.action, Forward) for target in route.action.targets
    }
    return {name for cluster in clusters for name in _cluster_names(cluster)}


def _cluster_names(cluster: str) -> set[XdsName]:
    return {(TypeUrl.CLUSTER, cluster), (TypeUrl.ENDPOINT, cluster)}


def _ref(kind: str, name: ObjectName) -> Ref:
    return Ref(kind, name.namespace, name.name)
