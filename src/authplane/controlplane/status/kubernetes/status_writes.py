"""What to write to the API server, so that an object has our status and keeps what other controllers wrote."""

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

from authplane.controlplane.status.gateway_status import CONTROLLER
from authplane.controlplane.status.kubernetes.cluster_forms import LISTS, in_cluster
from authplane.controlplane.status.kubernetes.stored_objects import StoredObject
from authplane.controlplane.status.resource_status import AncestorStatus, Condition, ParentStatus, Status
from authplane.controlplane.status.status_json import condition_record, legacy_fields, listener_fields, with_known_time
from authplane.controlplane.status.stored_entries import (
    ANCESTORS,
    MOST_CONDITIONS,
    EntryList,
    entry_key,
    place_entries,
)
from authplane.core.names import Ref
from authplane.core.values import dataclass

FIELD_MANAGER: Final = "authplane"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
PROGRAMMED: Final = "Programmed"

_PASSING: Final = frozenset({"PolicyServerReady", "SchemasComplete", "UpToDate", "Valid"})
"""Our conditions that an object may lose; the others stay as long as the object is ours."""
_IN_ENTRIES: Final = frozenset({"Accepted", "Enforced", "Programmed", "ResolvedRefs", "UpToDate"})
"""Our conditions in an entry of ours."""

_Record: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A condition that gets another status."""

    part: str
    """The part of the object that the condition is about; empty for the whole."""
    type: str
    before: Mapping[str, Any]
    """The condition that was stored; empty if there was none."""
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusWrite:
    """A patch of an object's status.

    It has the resource version of the object as precondition: if another client has written since, nothing happens.
    """

    stored: StoredObject
    query: Mapping[str, str]
    content_type: str
    body: bytes
    transitions: tuple[Transition, ...]


def build_write(
    status: Status, stored: StoredObject, now: datetime, *, known: Container[Ref] = (), patient: bool = False
) -> StatusWrite | None:
    """Return the patch that gives an object our status; None if it has it, or if the status is of another generation.

    Times of transitions are taken from the object, so they survive a restart. ``known`` are all objects with a status.
    While the caller is ``patient``, a condition ``Programmed`` that became unknown stays as it is stored: proxies
    answer, or reconnect, within seconds.
    """
    if stored.generation != status.generation:
        return None
    shaped = in_cluster(status, stored, known)
    made = _Made(shaped.generation, now, patient)
    listed = LISTS.get(status.ref.kind)
    return _keyed(shaped, stored, made) if listed is None else _listed(shaped, stored, made, listed)


def build_withdrawal(stored: StoredObject) -> StatusWrite | None:
    """Return the patch that takes our status from an object that is not ours any more; None if it has nothing of us."""
    listed = LISTS.get(stored.ref.kind)
    if listed is None:
        # Applying nothing removes what earlier applies of ours added, and nothing else.
        return _apply(stored, {}, ()) if stored.status else None
    before = _entries(stored, listed)
    entries = place_entries(before, {}, listed)
    return None if entries == before else _merge(stored, listed, entries, ())


def awaits_proxies(status: Status) -> bool:
    """Tell whether a condition depends on proxies that have not answered, or are not connected."""
    return any(
        each.type == PROGRAMMED and each.status == "Unknown"
        for conditions in _all_conditions(status)
        for each in conditions
    )


def differs_while_waiting(before: Status, after: Status) -> bool:
    """Tell whether a status says something new, apart from proxies of which an answer is still awaited."""
    if before is after or before == after:
        return False
    if (before.generation, before.stored) != (after.generation, after.stored):
        return True
    known, new = [*_all_conditions(before)], [*_all_conditions(after)]
    if len(known) != len(new) or _parts(before) != _parts(after):
        return True
    return any(len(old) != len(now) or any(map(_says_more, old, now)) for old, now in zip(known, new, strict=True))


def _says_more(old: Condition, new: Condition) -> bool:
    if old is new or old == new:
        return False
    return not (new.type == old.type == PROGRAMMED and new.status == "Unknown" and old.status != "Unknown")


def _parts(status: Status) -> tuple[object, ...]:
    return (
        *((each.name, each.attached_routes) for each in status.listeners),
        *(each.ref for each in status.parents),
        *(each.ref for each in status.ancestors),
    )


def _all_conditions(status: Status) -> Iterator[tuple[Condition, ...]]:
    yield status.conditions
    yield from (each.conditions for each in status.listeners)
    yield from (each.conditions for each in status.parents)
    yield from (each.conditions for each in status.ancestors)


@dataclass(frozen=True, slots=True)
class _Made:
    """How conditions become records."""

    generation: int
    now: datetime
    patient: bool

    def conditions(self, ours: Iterable[Condition], stored: object) -> list[_Record]:
        """Return our conditions, with the times of those that have not changed."""
        before = _by_type(stored)
        return [self._condition(each, before.get(each.type, {})) for each in ours]

    def _condition(self, ours: Condition, before: Mapping[str, Any]) -> _Record:
        unknown = ours.type == PROGRAMMED and ours.status == "Unknown"
        if unknown and self.patient and before.get("status") in {"True", "False"}:
            return dict(before)
        return with_known_time(before, condition_record(ours, self.generation, self.now))


# --- Kinds whose lists have keys: server-side apply of our own conditions


def _keyed(status: Status, stored: StoredObject, made: _Made) -> StatusWrite | None:
    before = stored.status
    wanted: _Record = {"conditions": made.conditions(status.conditions, before.get("conditions"))}
    if status.ref.kind == "HTTPProxy":
        wanted |= legacy_fields(status.conditions[0])
    changes = [*_transitions("", before.get("conditions"), wanted["conditions"])]
    if status.ref.kind == "Gateway":
        known = _by(before.get("listeners"), "name")
        wanted["listeners"] = [
            listener_fields(each)
            | {"conditions": made.conditions(each.conditions, known.get(each.name, {}).get("conditions"))}
            for each in status.listeners
        ]
        for each in wanted["listeners"]:
            stored_conditions = known.get(each["name"], {}).get("conditions")
            changes += _transitions(f"listener {each['name']}", stored_conditions, each["conditions"])
    return _apply(stored, {"status": wanted}, changes) if _differs(before, wanted) else None


def _apply(stored: StoredObject, ours: Mapping[str, Any], changes: Iterable[Transition]) -> StatusWrite:
    ref = stored.ref
    metadata = {"name": ref.name, "resourceVersion": stored.resource_version, "uid": stored.uid}
    metadata |= {"namespace": ref.namespace} if "/namespaces/" in stored.path else {}
    body = {"apiVersion": stored.api_version, "kind": ref.kind, "metadata": metadata, **ours}
    # Our conditions are ours, whoever wrote one of that type before.
    return _write(stored, {"fieldManager": FIELD_MANAGER, "force": "true"}, APPLY, body, changes)


def _differs(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Tell whether an apply of what is wanted would change anything."""
    before, ours = _by_type(stored.get("conditions")), _by_type(wanted.get("conditions"))
    if any(before.get(kind) != each for kind, each in ours.items()) or before.keys() & _PASSING - ours.keys():
        return True
    if any(stored.get(field) != value for field, value in wanted.items() if field not in {"conditions", "listeners"}):
        return True
    known, listeners = _by(stored.get("listeners"), "name"), _by(wanted.get("listeners"), "name")
    if "listeners" in wanted and known.keys() != listeners.keys():
        return True
    return any(_differs(known[name], each) for name, each in listeners.items())


# --- Kinds whose lists are atomic: the whole list is written again


def _listed(status: Status, stored: StoredObject, made: _Made, listed: EntryList) -> StatusWrite | None:
    before = _entries(stored, listed)
    parts: tuple[AncestorStatus | ParentStatus, ...]
    parts = status.ancestors if listed is ANCESTORS else status.parents
    changes: list[Transition] = []
    ours = {entry_key(dict(each.ref)): partial(_entry, each, made, listed, changes) for each in parts}
    entries = place_entries(before, ours, listed)
    return None if entries == before else _merge(stored, listed, entries, changes)


def _entries(stored: StoredObject, listed: EntryList) -> list[Any]:
    found = stored.status.get(listed.field)
    return found if isinstance(found, list) else []


def _merge(stored: StoredObject, listed: EntryList, entries: list[Any], changes: Iterable[Transition]) -> StatusWrite:
    metadata = {"resourceVersion": stored.resource_version, "uid": stored.uid}
    body = {"metadata": metadata, "status": {listed.field: entries}}
    return _write(stored, {"fieldManager": FIELD_MANAGER}, MERGE, body, changes)


def _entry(
    ours: AncestorStatus | ParentStatus,
    made: _Made,
    listed: EntryList,
    changes: list[Transition],
    stored: Mapping[str, Any],
) -> _Record:
    before = stored.get("conditions")
    conditions = made.conditions(ours.conditions, before)
    reference = stored.get(listed.reference) or dict(ours.ref)
    changes += _transitions(_named(reference), before, conditions)
    ordered = {each["type"]: each for each in conditions}
    # Conditions keep their order, so that a list that says the same is the same.
    kept = [
        ordered.pop(kind, each) for kind, each in _by_type(before).items() if kind in ordered or kind not in _IN_ENTRIES
    ]
    return {
        listed.reference: reference,
        "controllerName": CONTROLLER,
        "conditions": [*kept, *ordered.values()][:MOST_CONDITIONS],
    }


def _named(reference: Mapping[str, Any]) -> str:
    section = reference.get("sectionName")
    return f"{reference.get('kind', 'Gateway')} {reference.get('name', '')}" + (f" {section}" if section else "")


# --- Both


def _write(
    stored: StoredObject,
    query: Mapping[str, str],
    content_type: str,
    body: Mapping[str, Any],
    changes: Iterable[Transition],
) -> StatusWrite:
    return StatusWrite(
        stored=stored,
        query=query,
        content_type=content_type,
        body=json.dumps(body).encode(),
        transitions=tuple(changes),
    )


def _transitions(part: str, stored: object, made: Iterable[_Record]) -> Iterator[Transition]:
    before = _by_type(stored)
    for each in made:
        old = before.get(each["type"], {})
        if old.get("status") != each["status"]:
            yield Transition(part=part, type=each["type"], before=old, after=each)


def _by_type(conditions: object) -> dict[str, Mapping[str, Any]]:
    return _by(conditions, "type")


def _by(entries: object, key: str) -> dict[str, Mapping[str, Any]]:
    listed = entries if isinstance(entries, list) else ()
    return {str(each.get(key)): each for each in listed if isinstance(each, Mapping)}
