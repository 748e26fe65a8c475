"""The condition of an installation whose cluster drops fields that the control plane reads."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from authplane.controlplane.status.resource_status import Condition, Status
from authplane.core.names import Ref
from authplane.core.text import name_some
from authplane.sources.kubernetes.installed_kinds import InstalledKind

_TYPE: Final = "SchemasComplete"
_MOST_FIELDS: Final = 20


def schema_condition(installed: Sequence[InstalledKind]) -> Condition:
    """Say which fields the API server drops from the objects that it stores."""
    pruned = [pruned_words(each) for each in installed if each.pruned]
    if not pruned:
        kept = "The installed CustomResourceDefinitions keep every field that authplane reads."
        return Condition(type=_TYPE, status="True", reason="FieldsKept", message=kept)
    dropped = ". ".join(pruned)
    message = f"{dropped}. Remove these fields from your objects, or install newer CustomResourceDefinitions."
    return Condition(type=_TYPE, status="False", reason="FieldsDropped", message=message)


def pruned_words(kind: InstalledKind) -> str:
    """Name the fields of a kind that the API server drops; a sentence without its end."""
    return f"The API server drops these fields of {kind.resource}: {name_some(kind.pruned, _MOST_FIELDS)}"


def with_installed_schemas(
    statuses: Iterable[Status], ref: Ref, installed: Sequence[InstalledKind]
) -> tuple[Status, ...]:
    """Add to the status of the configuration what the cluster drops; nothing in a folder."""
    if not installed:
        return tuple(statuses)
    condition = schema_condition(installed)
    return tuple(
        replace(each, conditions=(*each.conditions, condition)) if each.ref == ref else each for each in statuses
    )
