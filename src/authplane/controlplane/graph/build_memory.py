"""What one build of the graph leaves to the next."""

from dataclasses import dataclass, field

from authplane.controlplane.graph.gateway.gateway_api import GatewayMemory
from authplane.controlplane.graph.httpproxy.root_hosts import Root
from authplane.controlplane.graph.memo.memo import Memo
from authplane.controlplane.graph.upstreams.extension_services import ExtensionMemo
from authplane.controlplane.graph.upstreams.service_clusters import ClusterMemo
from authplane.core.names import ObjectName


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was built, until something that its build looked at is another."""

    roots: Memo[ObjectName, Root] = field(default_factory=Memo)
    clusters: ClusterMemo = field(default_factory=Memo)
    extensions: ExtensionMemo = field(default_factory=Memo)
    gateways: GatewayMemory = field(default_factory=GatewayMemory)
