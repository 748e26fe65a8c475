"""What the next build of the graph reuses."""

from dataclasses import field

from authplane.controlplane.graph.gateway.gateway_api import GatewayMemory
from authplane.controlplane.graph.httpproxy.proxy_ports import Root
from authplane.controlplane.graph.model.grpc_servers import GrpcServer
from authplane.controlplane.graph.model.port_model import Certificate, PortMemory
from authplane.controlplane.graph.model.upstreams import CertificateFiles
from authplane.controlplane.graph.upstreams.extension_services import ExtensionMemo
from authplane.controlplane.graph.upstreams.service_clusters import ClusterMemo
from authplane.core.memo import Memo, Watched
from authplane.core.names import ObjectName, Ref
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was built, until something that its build looked at is another."""

    roots: Watched[ObjectName, Root] = field(default_factory=Watched)
    ports: PortMemory = field(default_factory=PortMemory)
    """Those of HTTPProxies."""
    clusters: ClusterMemo = field(default_factory=Watched)
    extensions: ExtensionMemo = field(default_factory=Watched)
    gateways: GatewayMemory = field(default_factory=GatewayMemory)
    grpc_servers: Memo[Ref, GrpcServer] = field(default_factory=Memo)
    certificates: Memo[ObjectName, Certificate | CertificateFiles] = field(default_factory=Memo)
