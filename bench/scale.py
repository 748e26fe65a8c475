"""A large gateway: what a full build costs, stage by stage, and what one changed object costs afterwards."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.certificates import ca_secret, server, tls_secret
from tests.support.resources.contour_documents import AUTH, ECHO, EXTENSION

from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.render.rendered import snapshot_of
from authplane.controlplane.render.resource_parts import Bodies
from authplane.controlplane.serving.generation import Generation, build_generation, differences
from authplane.sources.document_versions import Library

_SIZE = 10_000
_ROUNDS = 5


async def main() -> None:
    """Build, then change a route of one host and the authorization of another, and compare."""
    library = Library()
    stages: dict[str, float] = {}
    with _timed(stages, "decode"):
        _fill(library)
        loaded = library.current()
    with _timed(stages, "graph"):
        built = build_graph(loaded.resources)
    bodies = Bodies()
    with _timed(stages, "render"):
        snapshot_of(built.graph, bodies)
    with _timed(stages, "hash"):
        snapshot_of(built.graph, bodies)
    stages["render"] -= stages["hash"]
    generation = build_generation(loaded)
    with _timed(stages, "push"):
        differences(None, generation.snapshot)
    full = sum(stages.values())
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"  {_SIZE} HTTPProxies: {full:.2f} s, {megabytes:.0f} MB at most; {_words(stages)}", flush=True)
    for what in ("route", "authorization"):
        cost, part = _change(library, generation, what)
        print(
            f"  one {what} changed: {cost * 1000:.0f} ms, {100 * cost / full:.1f} % of the full build (limit 5 %); "
            f"{_words(part)}",
            flush=True,
        )


def _words(stages: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in stages.items())


@contextmanager
def _timed(stages: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    stages[name] = stages.get(name, 0.0) + time.perf_counter() - begun


def _fill(library: Library) -> None:
    for index, text in enumerate([ECHO, AUTH, EXTENSION, ca_secret("ca"), tls_secret("tls", server("web.example"))]):
        library.changed(f"common-{index}.yaml", text.encode())
    for index in range(_SIZE):
        library.changed(f"{index}.yaml", _proxy(index).encode())


def _proxy(index: int, path: str = "/public", context: str = "blue") -> str:
    return f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: web-{index}}}
spec:
  virtualhost:
    fqdn: web-{index}.example
    tls: {{secretName: tls}}
    authorization:
      extensionRef: {{name: auth}}
      responseTimeout: 500ms
      authPolicy: {{context: {{tenant: {context}}}}}
  routes:
  - services: [{{name: echo, port: 80}}]
  - conditions: [{{prefix: {path}}}]
    authPolicy: {{disabled: true}}
    services: [{{name: echo, port: 80}}]
"""


def _change(library: Library, generation: Generation, what: str) -> tuple[float, dict[str, float]]:
    """Return the best of a few changes, and its stages."""
    best: tuple[float, dict[str, float]] | None = None
    for number in range(_ROUNDS):
        text = _proxy(7, path=f"/open-{number}") if what == "route" else _proxy(8, context=f"c{number}")
        stages: dict[str, float] = {}
        with _timed(stages, "decode"):
            library.changed("7.yaml" if what == "route" else "8.yaml", text.encode())
            loaded = library.current()
        before = generation
        with _timed(stages, "graph, render and hash"):
            generation = build_generation(loaded, before)
        with _timed(stages, "push"):
            differences(before.snapshot, generation.snapshot)
        cost = sum(stages.values())
        begun = time.perf_counter()
        generation.status(NoProxy())
        stages["status afterwards"] = time.perf_counter() - begun
        if best is None or cost < best[0]:
            best = cost, stages
    if best is None:
        raise RuntimeError
    return best
