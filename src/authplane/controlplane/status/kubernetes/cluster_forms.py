"""Statuses in the forms that the schemas of a cluster have room for."""

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final

from authplane.controlplane.status.kubernetes.stored_objects import StoredObject
from authplane.controlplane.status.resource_status import Condition, ParentStatus, Status
from authplane.controlplane.status.stored_entries import ANCESTORS, PARENTS, EntryList
from authplane.core.names import Ref
from authplane.resources.catalogue import POLICIES, TLS_POLICY

LISTS: Final[Mapping[str, EntryList]] = {"HTTPRoute": PARENTS, **dict.fromkeys((*POLICIES, TLS_POLICY), ANCESTORS)}
"""The kinds whose status is a list of entries by several controllers."""
_DETAILED: Final = frozenset(
    {"AuthplaneConfiguration", "ContourConfiguration", "ExtensionService", "HTTPProxy", "TLSCertificateDelegation"}
)
"""The kinds whose conditions list errors and warnings."""
_LONGEST_MESSAGE: Final = 32_768


def in_cluster(status: Status, stored: StoredObject, known: Container[Ref]) -> Status:
    """Return a status without the parts that the schema of its kind lacks; their content moves to other parts.

    A route that cannot be read has an entry for each of its Gateways that is ``known`` to the control plane.
    """
    conditions = _plain(status.ref.kind, status.conditions)
    if status.ref.kind not in LISTS:
        listeners = (replace(each, conditions=_plain(status.ref.kind, each.conditions)) for each in status.listeners)
        return replace(status, conditions=conditions, listeners=tuple(listeners))
    parents = status.parents
    if status.ref.kind == "HTTPRoute" and not parents:
        conditions = tuple(map(_as_accepted, conditions))
        found = (each for each in stored.references if _gateway(each, status.ref.namespace) in known)
        parents = tuple(ParentStatus(ref=_fields(each), conditions=()) for each in found) if conditions else ()
    return replace(
        status,
        conditions=(),
        parents=tuple(replace(each, conditions=(*each.conditions, *conditions)) for each in parents),
        ancestors=tuple(replace(each, conditions=(*each.conditions, *conditions)) for each in status.ancestors),
    )


def _plain(kind: str, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return conditions if kind in _DETAILED else tuple(map(_folded, conditions))


def _folded(condition: Condition) -> Condition:
    """Say in the message what the condition's lists of errors and warnings say."""
    if not condition.errors and not condition.warnings:
        return condition
    errors = [each.message for each in condition.errors]
    warnings = [each.message for each in condition.warnings]
    parts = errors or [condition.message]
    parts += [f"Warnings: {'; '.join(warnings)}"] if warnings else []
    return replace(condition, message=" ".join(parts)[:_LONGEST_MESSAGE], errors=(), warnings=())


def _as_accepted(condition: Condition) -> Condition:
    """Say of an entry what ``Valid`` says of an object: the Gateway API knows ``Accepted``."""
    if condition.type != "Valid":
        return condition
    return replace(condition, type="Accepted", reason="Accepted" if condition.status == "True" else "Invalid")


def _gateway(reference: Mapping[str, Any], namespace: str) -> Ref:
    kind, name = str(reference.get("kind", "Gateway")), str(reference.get("name", ""))
    return Ref(kind, str(reference.get("namespace", namespace)), name)


def _fields(reference: Mapping[str, Any]) -> tuple[tuple[str, str | int], ...]:
    names = ("group", "kind", "namespace", "name", "sectionName", "port")
    return tuple((name, reference[name]) for name in names if isinstance(reference.get(name), str | int))
