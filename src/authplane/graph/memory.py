"""What one build of the graph leaves to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from authplane.base.names import ObjectName, Ref
from authplane.base.problems import Problem
from authplane.graph.downstream_tls import DownstreamTls
from authplane.graph.extensions import ExtensionMemo
from authplane.graph.gateway_api import GatewayMemory
from authplane.graph.memo import Memo
from authplane.graph.model import Host, SecureHost
from authplane.graph.service_clusters import ClusterMemo

Found = Mapping[Ref, tuple[Problem, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """What a root HTTPProxy becomes, and what its build has to say about it and those that it includes."""

    plain: Host
    secure: SecureHost | None
    tls: DownstreamTls | None
    served: bool
    """Otherwise an error has withdrawn it."""
    clusters: frozenset[str]
    """Where its requests are sent."""
    found: Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What was built, until something that its build looked at is another."""

    roots: Memo[ObjectName, Root] = field(default_factory=Memo)
    clusters: ClusterMemo = field(default_factory=Memo)
    extensions: ExtensionMemo = field(default_factory=Memo)
    gateways: GatewayMemory = field(default_factory=GatewayMemory)
