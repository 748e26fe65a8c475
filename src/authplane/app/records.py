"""Values as programs read them: the JSON forms of the command line."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from authplane.base.names import Ref
from authplane.base.problems import dotted
from authplane.graph.status import Condition, Status, SubCondition
from authplane.resources.documents import Finding


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


class Transitions:
    """Remembers since when each condition has been as it is."""

    def __init__(self) -> None:
        self._since: dict[tuple[Ref, str], tuple[str, datetime]] = {}

    def observe(self, statuses: Iterable[Status], now: datetime) -> None:
        """Take note of what is so now; resources that are gone are forgotten."""
        known, self._since = self._since, {}
        for status in statuses:
            for condition in status.conditions:
                key = (status.ref, condition.type)
                before = known.get(key)
                unchanged = before is not None and before[0] == condition.status
                self._since[key] = before if before is not None and unchanged else (condition.status, now)

    def records(self, statuses: Sequence[Status], now: datetime) -> list[dict[str, Any]]:
        """Return statuses as Kubernetes would store them."""
        self.observe(statuses, now)
        return [self._record(status) for status in statuses]

    def _record(self, status: Status) -> dict[str, Any]:
        body: dict[str, Any] = {
            "conditions": [
                _condition_record(each, status.generation, self._since[status.ref, each.type][1])
                for each in status.conditions
            ]
        }
        if status.ref.kind == "HTTPProxy":
            body |= _legacy(status.conditions[0])
        return {
            "apiVersion": status.api_version,
            "kind": status.ref.kind,
            "metadata": {"name": status.ref.name, "namespace": status.ref.namespace},
            "status": body,
        }


def _legacy(valid: Condition) -> dict[str, str]:
    """Return the two fields that HTTPProxy had before conditions; tools still read them."""
    if valid.status == "True":
        word = "valid"
    elif any(error.type == "Orphaned" for error in valid.errors):
        word = "orphaned"
    else:
        word = "invalid"
    return {"currentStatus": word, "description": valid.message}


def _condition_record(condition: Condition, generation: int, since: datetime) -> dict[str, Any]:
    record: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if condition.errors:
        record["errors"] = [_sub_record(error) for error in condition.errors]
    if condition.warnings:
        record["warnings"] = [_sub_record(warning) for warning in condition.warnings]
    return record


def _sub_record(sub: SubCondition) -> dict[str, str]:
    return {"type": sub.type, "status": "True", "reason": sub.reason, "message": sub.message}
