"""All problems of a folder, each with its place."""

from collections.abc import Iterable
from typing import Any

from authplane.controlplane.graph.build import Built
from authplane.controlplane.graph.reached_targets import routed_targets
from authplane.core.problems import Severity, dotted
from authplane.policy.attached.unprotected import unprotected_problems
from authplane.policy.compile.compile_policies import Compiled
from authplane.resources.documents import Finding, Place
from authplane.sources.document_versions import Loaded


def build_findings(loaded: Loaded, built: Built, compiled: Compiled) -> tuple[Finding, ...]:
    """Return every problem, whichever pass found it."""
    located = [
        loaded.finding(ref, problem)
        for found in (built.problems, compiled.problems)
        for ref, problems in found.items()
        for problem in problems
    ]
    located += (
        Finding(loaded.place(ref), ref, problem)
        for ref, problem in unprotected_problems(compiled.policies, routed_targets(built))
    )
    return tuple(sorted({*loaded.findings, *located}, key=_position))


def has_errors(findings: Iterable[Finding]) -> bool:
    """Tell whether any problem costs a document."""
    return any(finding.problem.severity is Severity.ERROR for finding in findings)


def finding_record(finding: Finding) -> dict[str, Any]:
    """Return a problem as ``authplane validate -o json`` prints it."""
    return {
        "file": finding.place.file,
        "line": finding.place.line,
        "column": finding.place.column,
        "resource": str(finding.ref) if finding.ref else "",
        "path": dotted(finding.problem.path),
        "reason": finding.problem.reason,
        "message": finding.problem.message,
        "severity": finding.problem.severity.value,
    }


def _position(finding: Finding) -> tuple[Place, str, str]:
    return (finding.place, finding.problem.reason, finding.problem.message)
