"""The input for building a host, beside its own HTTPProxy."""

from collections.abc import Mapping, Sequence

from authplane.controlplane.graph.model.route_authorization import HostAuthorization
from authplane.controlplane.graph.model.upstreams import Extension
from authplane.controlplane.graph.reports import Reports
from authplane.controlplane.graph.settings.gateway_settings import Settings
from authplane.controlplane.graph.upstreams.service_clusters import Clusters
from authplane.core.names import ObjectName
from authplane.core.values import dataclass
from authplane.resources.documents import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """Everything that hosts share."""

    resources: Resources
    settings: Settings
    unusable: str
    """The kind of the configuration that cannot be used: then nothing is served. Empty if all is well."""
    owners: Mapping[str, Sequence[ObjectName]]
    """Which roots claim a name."""
    extensions: Mapping[ObjectName, Extension]
    global_authorization: HostAuthorization
    """The authorization of hosts that name no service."""
    clusters: Clusters
    reports: Reports
