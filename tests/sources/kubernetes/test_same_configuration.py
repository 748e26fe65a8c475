"""A folder and a cluster with the same objects give the same configuration, byte for byte."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.core.names import ObjectName
from authplane.core.problems import dotted
from authplane.policy.compile.compile_policies import CONTROLLER
from authplane.resources.document_chunks import split_documents
from authplane.resources.yaml.nodes import parse_nodes, plain
from authplane.sources.document_versions import Library
from authplane.sources.kubernetes.api_kinds import ApiKind, api_kinds
from authplane.sources.kubernetes.cluster_objects import ClusterObjects
from authplane.sources.kubernetes.object_classes import GATEWAY_CLASSES
from authplane.sources.kubernetes.object_documents import object_source
from authplane.sources.kubernetes.reflector_steps import Put
from authplane.sources.runtime.read_folder import Folder
from authplane.xds.server.served_types import TypeUrl

ROOT = Path(__file__).parents[3]
FOLDERS = sorted({each.parent for each in (ROOT / "tests" / "golden").rglob("in.yaml")} | {
    each for each in (ROOT / "examples").iterdir() if each.is_dir() and any(each.rglob("*.yaml"))
})  # fmt: skip


def _documents(folder: Path) -> list[dict[str, Any]]:
    found: list[Any] = []
    files = [folder / "in.yaml"] if (folder / "in.yaml").exists() else sorted(folder.rglob("*.y*ml"))
    for file in files:
        for piece, _ in split_documents(file.read_text()):
            root = parse_nodes(piece).root
            each = plain(root) if root is not None else None
            found += each["items"] if isinstance(each, dict) and each.get("kind") == "List" else [each]
    return [each for each in found if isinstance(each, dict)]


def _generation(folder: Path) -> Generation:
    read = Folder(folder / "in.yaml" if (folder / "in.yaml").exists() else folder)
    read.scan()
    return build_generation(read.library.current())


def _bytes(generation: Generation) -> Mapping[TypeUrl, Mapping[str, bytes]]:
    snapshot = generation.snapshot
    return {kind: {name: each.body for name, each in snapshot.resources(kind).items()} for kind in TypeUrl}


def _cluster(documents: list[dict[str, Any]]) -> Generation:
    library = Library(again=object_source)
    objects = ClusterObjects(library)
    for kind, change in _changes(documents):
        objects.take(kind, change)
    library.settle()
    if objects.reclassify():
        library.settle()
    return build_generation(library.current())


def _changes(documents: list[dict[str, Any]]) -> Iterator[tuple[ApiKind, Put]]:
    kinds = {(each.group, each.kind): each for each in api_kinds()}
    classes = {_spec(each).get("gatewayClassName", "authplane") for each in documents if each.get("kind") == "Gateway"}
    for name in classes:
        spec = {"controllerName": CONTROLLER}
        yield (
            GATEWAY_CLASSES,
            Put(ObjectName("", name), {"kind": "GatewayClass", "metadata": {"name": name}, "spec": spec}),
        )
    for each in documents:
        kind = kinds.get((str(each.get("apiVersion")).rpartition("/")[0], str(each.get("kind"))))
        if kind is not None:
            meta = {"namespace": "default", **each["metadata"], "managedFields": [], "uid": "u", "resourceVersion": "1"}
            yield kind, Put(ObjectName(meta["namespace"], meta["name"]), {**each, "metadata": meta})


def _spec(document: dict[str, Any]) -> dict[str, Any]:
    spec = document.get("spec")
    return spec if isinstance(spec, dict) else {}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: str(each.relative_to(ROOT)))
def test_a_folder_and_a_cluster_give_the_same_configuration(folder: Path) -> None:
    assert _bytes(_cluster(_documents(folder))) == _bytes(_generation(folder))


def test_a_problem_of_an_object_names_the_object_and_the_field() -> None:
    proxy = {
        "apiVersion": "projectcontour.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"name": "web", "namespace": "shop"},
    }
    generation = _cluster([{**proxy, "spec": {"virtualhost": {"fqdn": "a.example"}, "routes": [{"services": [{}]}]}}])
    assert [(str(each.place), dotted(each.problem.path)) for each in generation.findings] == [
        ("httpproxies.projectcontour.io/shop/web", "spec.routes[0].services[0].name"),
        ("httpproxies.projectcontour.io/shop/web", "spec.routes[0].services[0].port"),
    ]
    generation = _cluster([{**proxy, "spec": {"virtualhost": {"fqdn": "a.example"}, "routes": []}}])
    assert {str(each.place) for each in generation.findings} == {"httpproxies.projectcontour.io/shop/web"}
