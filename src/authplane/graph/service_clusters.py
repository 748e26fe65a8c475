"""The clusters that routes ask for."""

from authplane.base.names import ObjectName
from authplane.graph.services import ExternalAddress, Unresolved, resolve
from authplane.graph.settings import ExternalNames
from authplane.graph.upstreams import EndpointGroup, HttpVersion, Plaintext, ServiceCluster
from authplane.resources.documents import Resources


class ServiceClusters:
    """The clusters that routes have asked for so far, each once."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._known: dict[tuple[ObjectName, int, HttpVersion], ServiceCluster | Unresolved] = {}

    def ensure(self, service: ObjectName, port: int, version: HttpVersion) -> ServiceCluster | Unresolved:
        """Return the cluster of a Service's port, or why there can be none."""
        key = (service, port, version)
        if key not in self._known:
            self._known[key] = self._build(service, port, version)
        return self._known[key]

    def built(self) -> list[ServiceCluster]:
        """Return every cluster that was asked for and exists."""
        return [cluster for cluster in self._known.values() if isinstance(cluster, ServiceCluster)]

    def _build(self, service: ObjectName, port: int, version: HttpVersion) -> ServiceCluster | Unresolved:
        endpoints = resolve(self._resources, service, port, ExternalNames.NOWHERE)
        if isinstance(endpoints, Unresolved):
            return endpoints
        if isinstance(endpoints, ExternalAddress):
            return Unresolved("UnsupportedServiceType", f'Service "{service}" is of unsupported type "ExternalName".')
        name = f"service/{service}/{port}/h2c" if version is HttpVersion.HTTP2 else f"service/{service}/{port}"
        group = EndpointGroup(service=service, weight=1, endpoints=endpoints)
        return ServiceCluster(name=name, version=version, tls=Plaintext(), destinations=(group,))
