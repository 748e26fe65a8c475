"""The four resource types that an xDS client subscribes to."""

from collections.abc import Callable
from typing import TypeVar

from authplane.core.values import dataclass
from authplane.dataplane.config.clusters import Cluster, ClusterEndpoints
from authplane.dataplane.config.listeners import Listener
from authplane.dataplane.config.read.decode_resource import (
    decode_cluster,
    decode_endpoints,
    decode_listener,
    decode_routes,
)
from authplane.dataplane.config.routes import RouteConfiguration
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.registry import Registry, Scope, Trust
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap
from authplane.xds.client.watched_types import Decoded, Invalid, ResourceType, Source
from authplane.xds.server.served_types import FULL_SETS, TypeUrl

R = TypeVar("R", Listener, RouteConfiguration, Cluster, ClusterEndpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTypes:
    """What a client or a server watches."""

    listener: ResourceType[Listener]
    routes: ResourceType[RouteConfiguration]
    cluster: ResourceType[Cluster]
    endpoints: ResourceType[ClusterEndpoints]

    def of(self, url: TypeUrl) -> ResourceType[Listener | RouteConfiguration | Cluster | ClusterEndpoints]:
        """Return the type that a resolver's name is of."""
        match url:
            case TypeUrl.LISTENER:
                return self.listener
            case TypeUrl.ROUTE:
                return self.routes
            case TypeUrl.CLUSTER:
                return self.cluster
            case TypeUrl.ENDPOINT:
                return self.endpoints
            case _:
                raise ValueError(f"resolvers use no resources of type {url}")


def resource_types(side: Side, registry: Registry, bootstrap: Bootstrap) -> ResourceTypes:
    """Make the types for one side, with the filters that it has."""

    def made(url: TypeUrl, decode: Callable[[bytes, Scope], R | Invalid]) -> ResourceType[R]:
        def from_source(data: bytes, source: Source) -> Decoded[R] | Invalid:
            got = decode(data, Scope(side=side, trust=Trust.in_server(source, bootstrap), registry=registry))
            return got if isinstance(got, Invalid) else Decoded(name=got.name, value=got)

        return ResourceType(type_url=url, decode=from_source, full_set=url in FULL_SETS)

    return ResourceTypes(
        listener=made(TypeUrl.LISTENER, decode_listener),
        routes=made(TypeUrl.ROUTE, decode_routes),
        cluster=made(TypeUrl.CLUSTER, decode_cluster),
        endpoints=made(TypeUrl.ENDPOINT, decode_endpoints),
    )
