"""What one build of the graph leaves to the next."""

from dataclasses import dataclass, field

from authplane.base.names import ObjectName
from authplane.graph.extensions import ExtensionMemo
from authplane.graph.gateway_api import GatewayMemory
from authplane.graph.memo import Memo
from authplane.graph.root_hosts import Root
from authplane.graph.service_clusters import ClusterMemo


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was built, until something that its build looked at is another."""

    roots: Memo[ObjectName, Root] = field(default_factory=Memo)
    clusters: ClusterMemo = field(default_factory=Memo)
    extensions: ExtensionMemo = field(default_factory=Memo)
    gateways: GatewayMemory = field(default_factory=GatewayMemory)
