"""A folder and its problems; this module imports nothing that renders for Envoy."""

from pathlib import Path
from typing import NamedTuple

from authplane.cli.shared.folder_argument import read_folder
from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.status.findings import build_findings
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.resources.documents import Finding
from authplane.sources.document_versions import Loaded


class Checked(NamedTuple):
    """The resources of a folder and its problems."""

    loaded: Loaded
    findings: tuple[Finding, ...]


def check_folder(root: Path) -> Checked:
    """Read a folder and find every problem; exit with an error if it cannot be read."""
    loaded = read_folder(root)
    compiled = PolicyCompiler().compile(loaded.resources)
    built = build_graph(loaded.resources, policies=compiled.policies)
    return Checked(loaded, build_findings(loaded, built, compiled))
