"""Values as programs read them: the JSON forms of the command line."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from authplane.controlplane.status.gateway_status import CONTROLLER
from authplane.controlplane.status.resource_status import (
    AncestorStatus,
    Condition,
    ListenerStatus,
    ParentStatus,
    Status,
    SubCondition,
)
from authplane.controlplane.status.stored_entries import ANCESTORS, entry_key, place_entries
from authplane.core.names import Ref
from authplane.resources.catalogue import POLICIES, TLS_POLICY

_AIMED: Final = POLICIES | {TLS_POLICY}
"""Kinds whose status has an entry for each target."""


class Transitions:
    """Remembers since when each condition has been as it is."""

    def __init__(self) -> None:
        self._since: dict[tuple[Ref, str, str], tuple[str, datetime]] = {}

    def observe(self, statuses: Iterable[Status], now: datetime) -> None:
        """Record the current conditions; resources that are gone are dropped."""
        known, self._since = self._since, {}
        for status in statuses:
            for part, condition in _conditions(status):
                key = (status.ref, part, condition.type)
                before = known.get(key)
                unchanged = before is not None and before[0] == condition.status
                self._since[key] = before if before is not None and unchanged else (condition.status, now)

    def records(self, statuses: Sequence[Status], now: datetime) -> list[dict[str, Any]]:
        """Return statuses as Kubernetes would store them."""
        self.observe(statuses, now)
        return [self._record(status) for status in statuses]

    def _record(self, status: Status) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if status.conditions or not (status.parents or status.ref.kind in _AIMED):
            body["conditions"] = self._conditions(status, "", status.conditions)
        if status.ref.kind == "HTTPProxy":
            body |= legacy_fields(status.conditions[0])
        if status.ref.kind == "Gateway":
            body["listeners"] = [
                listener_fields(each) | {"conditions": self._conditions(status, _listener_part(each), each.conditions)}
                for each in status.listeners
            ]
        if status.ref.kind == "HTTPRoute":
            body["parents"] = [
                {
                    "parentRef": dict(each.ref),
                    "controllerName": CONTROLLER,
                    "conditions": self._conditions(status, _parent_part(each), each.conditions),
                }
                for each in status.parents
            ]
        if status.ref.kind in _AIMED:
            ours = [
                {
                    "ancestorRef": dict(each.ref),
                    "controllerName": CONTROLLER,
                    "conditions": self._conditions(status, _ancestor_part(each), each.conditions),
                }
                for each in status.ancestors
            ]
            body["ancestors"] = _among_others(ours, status)
        return {
            "apiVersion": status.api_version,
            "kind": status.ref.kind,
            "metadata": {"name": status.ref.name, "namespace": status.ref.namespace},
            "status": body,
        }

    def _conditions(self, status: Status, part: str, conditions: Iterable[Condition]) -> list[dict[str, Any]]:
        return [
            condition_record(each, status.generation, self._since[status.ref, part, each.type][1])
            for each in conditions
        ]


def _among_others(ours: list[dict[str, Any]], status: Status) -> list[Any]:
    """Return the entries of a policy among those of other controllers, which stay where and as they are."""
    wanted = {entry_key(entry["ancestorRef"]): partial(_renewed, entry) for entry in ours}
    return place_entries([json.loads(each.text) for each in status.stored], wanted, ANCESTORS)


def _renewed(entry: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return our entry, with the times of what has not changed since it was stored."""
    listed = stored.get("conditions")
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    before = {each.get("type"): each for each in found}
    return entry | {"conditions": [with_known_time(before.get(each["type"], {}), each) for each in entry["conditions"]]}


def _conditions(status: Status) -> Iterator[tuple[str, Condition]]:
    """Return every condition, and of which part of the resource it is."""
    for condition in status.conditions:
        yield "", condition
    for listener in status.listeners:
        for condition in listener.conditions:
            yield _listener_part(listener), condition
    for parent in status.parents:
        for condition in parent.conditions:
            yield _parent_part(parent), condition
    for ancestor in status.ancestors:
        for condition in ancestor.conditions:
            yield _ancestor_part(ancestor), condition


def _listener_part(listener: ListenerStatus) -> str:
    return f"listener {listener.name}"


def _parent_part(parent: ParentStatus) -> str:
    return f"parent {parent.ref}"


def _ancestor_part(ancestor: AncestorStatus) -> str:
    return f"ancestor {ancestor.ref}"


def listener_fields(listener: ListenerStatus) -> dict[str, Any]:
    """Return the status of a listener without its conditions."""
    return {
        "name": listener.name,
        "supportedKinds": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}],
        "attachedRoutes": listener.attached_routes,
    }


def legacy_fields(valid: Condition) -> dict[str, str]:
    """Return the two fields that HTTPProxy had before conditions; tools still read them."""
    if valid.status == "True":
        return {"currentStatus": "valid", "description": valid.message}
    if valid.status == "Unknown":
        return {"currentStatus": "NotReconciled", "description": valid.message}
    for error in valid.errors:
        if error.type == "Orphaned":
            return {"currentStatus": "orphaned", "description": error.message}
    return {"currentStatus": "invalid", "description": valid.message}


def utc_text(time: datetime) -> str:
    """Return a time as Kubernetes writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition_record(condition: Condition, generation: int, since: datetime) -> dict[str, Any]:
    """Return a condition as Kubernetes stores it."""
    record: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": utc_text(since),
    }
    if condition.errors:
        record["errors"] = [_sub_record(error) for error in condition.errors]
    if condition.warnings:
        record["warnings"] = [_sub_record(warning) for warning in condition.warnings]
    return record


def _sub_record(sub: SubCondition) -> dict[str, str]:
    return {"type": sub.type, "status": "True", "reason": sub.reason, "message": sub.message}


def with_known_time(old: Mapping[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Keep the time of the last transition where there was none."""
    if old.get("status") != new["status"] or "lastTransitionTime" not in old:
        return new
    return new | {"lastTransitionTime": old["lastTransitionTime"]}
