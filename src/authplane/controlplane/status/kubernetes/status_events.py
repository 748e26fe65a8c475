"""Events of events.k8s.io/v1: the transitions of conditions that a person should see."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from authplane.controlplane.status.gateway_status import CONTROLLER
from authplane.controlplane.status.kubernetes.status_writes import Transition
from authplane.controlplane.status.kubernetes.stored_objects import StoredObject
from authplane.core.values import dataclass

_BAD: Final[Mapping[str, str]] = {
    "Accepted": "False",
    "Conflicted": "True",
    "PolicyServerReady": "False",
    "Programmed": "False",
    "Protected": "False",
    "Ready": "False",
    "ResolvedRefs": "False",
    "SchemasComplete": "False",
    "UpToDate": "False",
    "Valid": "False",
}
"""The conditions that people must see, and the status that is the bad one."""
_GROUP: Final = "/apis/events.k8s.io/v1"
_LONGEST_NOTE: Final = 1024
"""Bytes."""
_LONGEST_NAME: Final = 200
_LONGEST_INSTANCE: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWrite:
    """An Event to create; if it exists, its count rises instead."""

    collection: str
    """The path of the namespace's Events."""
    name: str
    body: bytes


def build_events(
    transitions: Iterable[Transition], stored: StoredObject, now: datetime, instance: str
) -> Iterator[EventWrite]:
    """Yield an Event for each transition that is for people; the same transition has the same name each time."""
    for each in transitions:
        kind = _sort(each)
        if kind is not None:
            yield _event(each, kind, stored, now, instance)


def series_patch(event: Mapping[str, Any], now: datetime) -> bytes:
    """Return the merge patch that counts one more occurrence of an Event."""
    series = event.get("series")
    count = series.get("count", 1) if isinstance(series, Mapping) else 1
    return json.dumps({"series": {"count": count + 1, "lastObservedTime": _micro(now)}}).encode()


def _sort(transition: Transition) -> str | None:
    """Return the type of the Event; None if there should be none."""
    bad = _BAD.get(transition.type)
    after, before = transition.after, transition.before
    rejected = "Rejected" in {after.get("reason"), before.get("reason")}
    if bad is None or (transition.type == "Programmed" and not rejected):
        # Whatever else keeps a resource from proxies is the subject of another condition.
        return None
    if after.get("status") == bad:
        return "Warning"
    recovered = before.get("status") == bad and after.get("status") != "Unknown"
    return "Normal" if recovered else None


def _event(transition: Transition, kind: str, stored: StoredObject, now: datetime, instance: str) -> EventWrite:
    after = transition.after
    about = f"{transition.part}: " if transition.part else ""
    said = "; ".join(str(each.get("message", "")) for each in after.get("errors", ())) or str(after.get("message", ""))
    note = _cut(f"{about}{transition.type} is {after['status']}. {said}".rstrip())
    identity = (stored.uid, transition.part, transition.type, after["status"], after["reason"], note)
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:20]
    name = f"{stored.ref.name[:_LONGEST_NAME].rstrip('.-')}.{digest}"
    namespace = stored.ref.namespace if "/namespaces/" in stored.path else "default"
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": _micro(now),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:_LONGEST_INSTANCE],
        "action": "StatusChanged",
        "reason": after["reason"],
        "type": kind,
        "note": note,
        "regarding": {
            "apiVersion": stored.api_version,
            "kind": stored.ref.kind,
            "name": stored.ref.name,
            "uid": stored.uid,
            "resourceVersion": stored.resource_version,
        }
        | ({"namespace": namespace} if "/namespaces/" in stored.path else {}),
    }
    return EventWrite(collection=f"{_GROUP}/namespaces/{namespace}/events", name=name, body=json.dumps(body).encode())


def _cut(text: str) -> str:
    whole = text.encode()
    return text if len(whole) <= _LONGEST_NOTE else whole[: _LONGEST_NOTE - 3].decode(errors="ignore") + "…"


def _micro(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
