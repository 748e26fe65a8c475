"""What a host is built from beside its own HTTPProxy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from authplane.base.names import ObjectName
from authplane.graph.guards import HostAuthorization
from authplane.graph.reports import Reports
from authplane.graph.service_clusters import Clusters
from authplane.graph.settings import Settings
from authplane.graph.upstreams import Extension
from authplane.resources.documents import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Everything that hosts share."""

    resources: Resources
    settings: Settings
    unusable: str
    """The kind of the configuration that cannot be used: then nothing is served. Empty if all is well."""
    owners: Mapping[str, Sequence[ObjectName]]
    """Which roots claim a name."""
    extensions: Mapping[ObjectName, Extension]
    global_authorization: HostAuthorization
    """Who authorizes the hosts that name nobody."""
    clusters: Clusters
    reports: Reports
