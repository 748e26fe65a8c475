"""Makes a generation with new keys of the same issuers, without building anything else again."""

from collections.abc import Mapping
from dataclasses import replace

from authplane.controlplane.serving.generation import Generation
from authplane.controlplane.serving.release_snapshots import Snapshots
from authplane.sources.document_versions import Loaded


def rekeyed(before: Generation | None, loaded: Loaded, keys: Mapping[str, str]) -> Generation | None:
    """Return what `build_generation` would, if the documents and the issuers with keys are those of ``before``.

    Placement depends on which issuers have keys, not on the keys: so the graph stays as it is.
    """
    if before is None or before.loaded is not loaded or before.built.graph.keys.keys() != keys.keys():
        return None
    graph = replace(before.built.graph, keys=keys)
    return replace(before, built=replace(before.built, graph=graph), snapshots=Snapshots(graph, before.snapshots))
