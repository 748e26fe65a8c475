"""The problems of files that are not written yet."""

from collections.abc import Mapping

from authplane.controlplane.graph.build import build_graph
from authplane.controlplane.status.findings import build_findings
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.resources.documents import Finding
from authplane.sources.document_versions import Library
from authplane.sources.required_targets import RequiredTargets
from authplane.sources.runtime.listing import is_read


def check_files(files: Mapping[str, str]) -> tuple[Finding, ...]:
    """Find what `authplane validate` would say about a folder with these files."""
    library = Library(RequiredTargets())
    for name, text in files.items():
        if is_read(name) and not any(part.startswith(".") for part in name.split("/")):
            library.changed(name, text.encode())
    loaded = library.current()
    compiled = PolicyCompiler().compile(loaded.resources)
    built = build_graph(loaded.resources, policies=compiled.policies)
    return build_findings(loaded, built, compiled)
