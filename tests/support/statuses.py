"""Statuses as an API server stores them, and what becomes of them when a patch arrives."""

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from authplane.controlplane.status.kubernetes.status_writes import MERGE, StatusWrite
from authplane.controlplane.status.kubernetes.stored_objects import StoredObject
from authplane.controlplane.status.resource_status import Condition
from authplane.core.names import Ref

APPLIED: Final = frozenset({"Valid", "Programmed", "UpToDate"})
"""The types that earlier applies of ours own, in the model."""


def condition(kind: str, status: str = "True") -> Condition:
    """Return a condition with a message of its own."""
    return Condition(type=kind, status=status, reason=kind, message=f"{kind} is {status}.")


def stored_object(ref: Ref, status: Mapping[str, Any], generation: int = 1) -> StoredObject:
    """Return an object with a status."""
    return StoredObject(
        ref=ref,
        api_version="example.org/v1",
        path=f"/apis/example.org/v1/namespaces/{ref.namespace}/things/{ref.name}",
        uid="u-7",
        resource_version="7",
        generation=generation,
        status=status,
    )


def applied(stored: Mapping[str, Any], write: StatusWrite) -> dict[str, Any]:
    """Return the status after a patch, as the API server merges it."""
    sent: dict[str, Any] = json.loads(write.body)["status"]
    found: dict[str, Any] = deepcopy(dict(stored))
    if write.content_type == MERGE:
        return found | sent
    wanted = {each["type"]: each for each in sent["conditions"]}
    kept = [
        wanted.pop(each["type"], each)
        for each in found.get("conditions", [])
        if each["type"] in wanted or each["type"] not in APPLIED
    ]
    return found | sent | {"conditions": [*kept, *wanted.values()]}
