"""The problems of files that are not written yet, and what their resources refer to."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.status.findings import build_findings
from authplane.core.names import ObjectName
from authplane.devkit.password_findings import password_findings
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.resources.documents import Finding
from authplane.sources.document_versions import Library
from authplane.sources.required_targets import RequiredTargets
from authplane.sources.runtime.listing import is_read

Resource = TypeVar("Resource")


class CheckedFiles(NamedTuple):
    """What authplane says about files."""

    findings: tuple[Finding, ...]
    wanted: frozenset[tuple[str, ObjectName]]
    """Kind and name of the Services, Secrets and ConfigMaps that resources refer to, whether they exist or not."""


def check_files(files: Mapping[str, str]) -> CheckedFiles:
    """Find what `authplane validate` would say about a folder with these files."""
    library = Library(RequiredTargets())
    for name, text in files.items():
        if is_read(name) and not any(part.startswith(".") for part in name.split("/")):
            library.changed(name, text.encode())
    loaded = library.current()
    services, secrets = _Noted(loaded.resources.services), _Noted(loaded.resources.secrets)
    config_maps = _Noted(loaded.resources.config_maps)
    resources = replace(loaded.resources, services=services, secrets=secrets, config_maps=config_maps)
    compiled = PolicyCompiler().compile(resources)
    built = build_graph(resources, policies=compiled.policies)
    noted = (("Service", services.noted), ("Secret", secrets.noted), ("ConfigMap", config_maps.noted))
    wanted = frozenset((kind, name) for kind, names in noted for name in names)
    return CheckedFiles((*build_findings(loaded, built, compiled), *password_findings(loaded)), wanted)


class _Noted(Mapping[ObjectName, Resource], Generic[Resource]):
    """Resources by name; notes each name that is looked up."""

    def __init__(self, table: Mapping[ObjectName, Resource]) -> None:
        self._table = table
        self.noted: set[ObjectName] = set()

    def __getitem__(self, name: ObjectName) -> Resource:
        self.noted.add(name)
        return self._table[name]

    def __iter__(self) -> Iterator[ObjectName]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)
