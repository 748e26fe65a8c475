"""A folder with its problems, and nothing that only proxies need: what renders for Envoy is not even imported."""

from pathlib import Path
from typing import NamedTuple

from authplane.cli.shared.folder_argument import read_folder
from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.status.findings import build_findings
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.resources.documents import Finding
from authplane.sources.document_versions import Loaded


class Checked(NamedTuple):
    """What a folder holds, and what is wrong with it."""

    loaded: Loaded
    findings: tuple[Finding, ...]


def check_folder(root: Path) -> Checked:
    """Read a folder and find every problem; a folder that cannot be read ends the command."""
    loaded = read_folder(root)
    compiled = PolicyCompiler().compile(loaded.resources)
    built = build_graph(loaded.resources, policies=compiled.policies)
    return Checked(loaded, build_findings(loaded, built, compiled))
