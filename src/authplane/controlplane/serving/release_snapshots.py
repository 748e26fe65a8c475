"""The snapshots of one generation for proxies of different Envoy releases."""

from typing import Final

from authplane.controlplane.graph.model.graph_model import Graph
from authplane.controlplane.graph.model.host_model import checks_of
from authplane.controlplane.graph.model.port_model import hosts_of
from authplane.controlplane.render.rendered import snapshot_of
from authplane.controlplane.render.resource_parts import Bodies
from authplane.core.envoy_releases import CURRENT, Release, first_alike, known_release
from authplane.core.values import dataclass
from authplane.xds.server.snapshot import Snapshot

_USUAL: Final = first_alike(CURRENT)


@dataclass(frozen=True, slots=True)
class _Edition:
    snapshot: Snapshot
    bodies: Bodies
    """The serialized parts, which the next generation may need again."""


class Snapshots:
    """The snapshots of one graph: that of the current release, and others on demand.

    A generation drops the snapshots that the one before did not use: releases without a proxy take no memory.
    """

    def __init__(self, graph: Graph, before: "Snapshots | None" = None) -> None:
        self._graph = graph
        self._before = before.carried() if before else {}
        self._made: dict[Release | None, _Edition] = {}
        self.current: Final = self._make(_USUAL)

    def carried(self) -> dict[Release | None, _Edition]:
        """Return the snapshots that the next generation may share."""
        return dict(self._made)

    def of(self, envoy: Release | None) -> Snapshot:
        """Return the snapshot for proxies of a release; None is for old proxies and those that report no release."""
        known = known_release(envoy) if envoy is not None else None
        first = first_alike(known) if known is not None else None
        if first in self._made:
            return self._made[first].snapshot
        return self._make(first) if depends_on_release(self._graph) else self.current

    def _make(self, envoy: Release | None) -> Snapshot:
        before = self._before.pop(envoy, None)
        bodies = before.bodies if before else Bodies()
        # Most of it is the same for all releases, and what is not is the same as before.
        known = self._made.get(_USUAL) or before
        made = snapshot_of(self._graph, bodies, known.snapshot if known else None, envoy)
        if before:
            made = made.sharing(before.snapshot)
        self._made[envoy] = _Edition(made, bodies)
        return made


def depends_on_release(graph: Graph) -> bool:
    """Tell whether a Gateway checks any request: how that is done is all that differs between releases."""
    return any(True for _ in checks_of(hosts_of(graph.gateways)))
