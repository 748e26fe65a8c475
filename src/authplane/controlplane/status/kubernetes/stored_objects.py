"""Objects as a Kubernetes API server has them, as far as their status is concerned."""

from collections.abc import Mapping
from typing import Any, Protocol

from authplane.core.names import Ref
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object of the API server."""

    ref: Ref
    api_version: str
    path: str
    """Where the API server has it: ``/apis/GROUP/VERSION/namespaces/NAMESPACE/PLURAL/NAME``."""
    uid: str
    resource_version: str
    generation: int
    status: Mapping[str, Any]
    references: tuple[Mapping[str, Any], ...] = ()
    """The ``parentRefs`` or ``targetRefs`` of its spec."""


class StoredObjects(Protocol):
    """Finds objects as they were last seen."""

    def find(self, ref: Ref) -> StoredObject | None:
        """Return an object; None if there is none."""


def parse_stored(ref: Ref, path: str, body: Mapping[str, Any]) -> StoredObject:
    """Read an object of the API server."""
    metadata, spec, status = (_mapping(body.get(part)) for part in ("metadata", "spec", "status"))
    generation = metadata.get("generation")
    references = spec.get("parentRefs", spec.get("targetRefs"))
    return StoredObject(
        ref=ref,
        api_version=str(body.get("apiVersion", "")),
        path=path,
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
        generation=generation if isinstance(generation, int) else 1,
        status=status,
        references=tuple(each for each in references if isinstance(each, Mapping))
        if isinstance(references, list)
        else (),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
