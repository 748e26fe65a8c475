"""Which of the programs beside the gateway a folder needs: those that its resources refer to."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from urllib.parse import urlsplit

from authplane.controlplane.graph.model.upstreams import (
    Cluster,
    EndpointGroup,
    ExtensionCluster,
    ExternalName,
    ServiceCluster,
    SocketFile,
)
from authplane.controlplane.graph.upstreams.policy_connection import POLICY_CLUSTER
from authplane.controlplane.serving.generation import Generation
from authplane.core.addresses import is_loopback
from authplane.resources.service_endpoints import Endpoint
from authplane.runtime.servers.listen import TcpAddress


class Part(StrEnum):
    """A program that `authplane run` can start beside the gateway."""

    AUTHSERVER = "authorization service"
    ECHO = "echo origin"
    TOOLS = "sample MCP server"
    ISSUER = "development issuer"

    @property
    def option(self) -> str:
        """The option that sets its address."""
        return f"--{self.name.lower()}-address"


def needed_parts(offered: Mapping[Part, TcpAddress], generation: Generation) -> frozenset[Part]:
    """Return the parts whose address a resource refers to."""
    return frozenset(
        part
        for part, address in offered.items()
        if any(_leads_to(endpoint, address) for endpoint in _endpoints(part, generation))
    )


def url_leads_to(url: str, address: TcpAddress) -> bool:
    """Tell whether an issuer's URL leads to an address of this machine."""
    return _leads_to(_of_url(url), address)


def _of_url(url: str) -> Endpoint:
    split = urlsplit(url)
    return Endpoint(split.hostname or "", split.port or 443)


def _endpoints(part: Part, generation: Generation) -> Iterator[Endpoint]:
    """Yield the endpoints that resources use for a part's task."""
    if part is Part.ISSUER:
        for issuer in generation.compiled.policies.issuers:
            yield _of_url(issuer.url.url)
        return
    kind = ExtensionCluster if part is Part.AUTHSERVER else ServiceCluster
    for cluster in generation.built.graph.clusters:
        # policyServer names a policy server that the user runs.
        if isinstance(cluster, kind) and cluster.name != POLICY_CLUSTER:
            yield from _destinations(cluster)


def _destinations(cluster: Cluster) -> Iterator[Endpoint]:
    for each in cluster.destinations:
        match each:
            case EndpointGroup(endpoints=endpoints):
                yield from endpoints
            case ExternalName(host=host, port=port):
                yield Endpoint(host, port)
            case SocketFile():
                pass


def _leads_to(endpoint: Endpoint, address: TcpAddress) -> bool:
    return endpoint.port == address.port and (is_loopback(endpoint.address) or endpoint.address == address.host)
