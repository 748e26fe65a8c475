"""A folder and its problems; this module imports nothing that renders for Envoy."""

from collections.abc import Iterable
from typing import NamedTuple

from authplane.cli.shared.cluster_options import Place
from authplane.cli.shared.read_place import options_at, read_place
from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.status.findings import build_findings
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.resources.documents import Finding
from authplane.resources.kinds.core import AUTH_TYPE
from authplane.sources.document_versions import Loaded


class Checked(NamedTuple):
    """The resources of a folder and its problems."""

    loaded: Loaded
    findings: tuple[Finding, ...]


def check_folder(place: Place) -> Checked:
    """Read a folder or a cluster and find every problem; exit with an error if it cannot be read."""
    loaded = read_place(place)
    compiled = PolicyCompiler(options_at(place)).compile(loaded.resources)
    built = build_graph(loaded.resources, policies=compiled.policies)
    findings = (*build_findings(loaded, built, compiled), *_of_passwords(loaded))
    return Checked(loaded, tuple(sorted(findings, key=lambda each: each.place)))


def _of_passwords(loaded: Loaded) -> Iterable[Finding]:
    resources = loaded.resources
    users = any(AUTH_TYPE in each.metadata.annotations for each in resources.secrets.values())
    if not users and not resources.authorization_services:
        return ()
    from authplane.devkit.password_findings import password_findings  # noqa: PLC0415 (only passwords need bcrypt)

    return password_findings(loaded)
