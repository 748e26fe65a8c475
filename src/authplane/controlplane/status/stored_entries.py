"""Lists in a status that several controllers write: entries of others stay where and as they are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from authplane.core.values import dataclass
from authplane.policy.compile.compile_policies import CONTROLLER, MOST_ANCESTORS

MOST_CONDITIONS: Final = 8
"""Conditions of one entry."""

Key: TypeAlias = tuple[object, ...]
"""The identity of an ancestor or parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryList:
    """A list of this form in a status."""

    field: str
    reference: str
    """The field of an entry that says what the entry is about."""
    most: int


ANCESTORS: Final = EntryList(field="ancestors", reference="ancestorRef", most=MOST_ANCESTORS)
PARENTS: Final = EntryList(field="parents", reference="parentRef", most=32)


def place_entries(
    stored: Sequence[Any], ours: Mapping[Key, Callable[[Mapping[str, Any]], dict[str, Any]]], listed: EntryList
) -> list[Any]:
    """Put our entries among those of others, as far as there is room; our own that are stale go.

    What makes an entry is given the one that was stored of it, or nothing.
    """
    wanted, merged = dict(ours), list[Any]()
    for entry in stored:
        if not isinstance(entry, Mapping) or entry.get("controllerName") != CONTROLLER:
            merged.append(entry)
            continue
        make = wanted.pop(entry_key(entry.get(listed.reference) or {}), None)
        if make is not None:
            merged.append(make(entry))
    room = max(0, listed.most - len(merged))
    return merged + [make({}) for make in list(wanted.values())[:room]]


def entry_key(reference: Mapping[str, Any]) -> Key:
    """Return the identity of an ancestor or parent, with the defaults of the Gateway API for missing fields."""
    defaults = {"group": "gateway.networking.k8s.io", "kind": "Gateway"}
    fields = ("group", "kind", "namespace", "name", "sectionName", "port")
    return tuple(reference.get(field, defaults.get(field)) for field in fields)
