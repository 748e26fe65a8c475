"""What proxies of different releases of Envoy get of one generation."""

from dataclasses import dataclass
from typing import Final

from authplane.cel.envoy.release import CURRENT, Release
from authplane.graph.gateway_api import splits
from authplane.graph.guards import Enforced
from authplane.graph.model import Graph, PlainPort
from authplane.render.parts import Bodies
from authplane.render.rendered import snapshot_of
from authplane.xds.snapshot import Snapshot

_USUAL: Final = CURRENT.edition


@dataclass(frozen=True, slots=True)
class _Edition:
    snapshot: Snapshot
    bodies: Bodies
    """What it was made of, which the next generation may need again."""


class Snapshots:
    """The snapshots of one graph: that of the current release, and others once somebody asks for them.

    What a generation was not asked for, the next one knows nothing of: no memory is kept for releases that nobody has.
    """

    def __init__(self, graph: Graph, before: "Snapshots | None" = None) -> None:
        self._graph = graph
        self._before = before.carried() if before else {}
        self._made: dict[Release | None, _Edition] = {}
        self.current: Final = self._make(_USUAL, CURRENT)

    def carried(self) -> dict[Release | None, _Edition]:
        """Return what the next generation may share."""
        return dict(self._made)

    def of(self, envoy: Release | None) -> Snapshot:
        """Return what proxies of a release get; None is for those that do not say it, and for old ones."""
        edition = envoy.edition if envoy is not None else None
        if edition in self._made:
            return self._made[edition].snapshot
        if not depends_on_release(self._graph):
            return self.current
        return self._make(edition, edition)

    def _make(self, edition: Release | None, envoy: Release | None) -> Snapshot:
        before = self._before.pop(edition, None)
        bodies = before.bodies if before else Bodies()
        known = self._made.get(_USUAL) or before
        made = snapshot_of(self._graph, bodies, known.snapshot if known else None, envoy)
        if before:
            made = made.sharing(before.snapshot)
        self._made[edition] = _Edition(made, bodies)
        return made


def depends_on_release(graph: Graph) -> bool:
    """Tell whether Envoy decides anything by itself: all else is the same for every release."""
    hosts = (
        host
        for port in graph.gateways
        for host in (
            port.hosts if isinstance(port, PlainPort) else (each for chain in port.chains for each in chain.hosts)
        )
    )
    return any(
        isinstance(share.authorization, Enforced) and share.authorization.placing is not None
        for split in splits(hosts)
        for share in split.shares
    )
