"""What a root HTTPProxy becomes."""

from collections.abc import Mapping
from dataclasses import dataclass

from authplane.controlplane.graph.httpproxy.downstream_tls import DownstreamTls
from authplane.controlplane.graph.model.host_model import Host
from authplane.controlplane.graph.model.port_model import SecureHost
from authplane.core.names import Ref
from authplane.core.problems import Problem

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
