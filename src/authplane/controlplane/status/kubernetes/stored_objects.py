"""Objects as a Kubernetes API server has them, as far as their status is concerned."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

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
    controller: str = ""
    """The controller of a GatewayClass."""


class StoredObjects:
    """The objects of the API server as they were last seen; statuses are kept as text, which takes less memory."""

    def __init__(self) -> None:
        self._objects: dict[Ref, tuple[StoredObject, str]] = {}

    def put(self, ref: Ref, path: str, body: Mapping[str, Any]) -> None:
        """Take a new version of an object."""
        stored = parse_stored(ref, path, body)
        self._objects[ref] = (replace(stored, status=_NOTHING), json.dumps(stored.status))

    def drop(self, ref: Ref) -> None:
        """Forget an object that is gone."""
        self._objects.pop(ref, None)

    def find(self, ref: Ref) -> StoredObject | None:
        """Return an object; None if there is none."""
        found = self._objects.get(ref)
        return None if found is None else replace(found[0], status=json.loads(found[1]))

    def version(self, ref: Ref) -> str:
        """Return the resource version of an object; empty if there is no such object."""
        found = self._objects.get(ref)
        return "" if found is None else found[0].resource_version

    def of_kind(self, kind: str) -> Iterator[StoredObject]:
        """Return all objects of a kind, without their statuses."""
        return (stored for ref, (stored, _) in self._objects.items() if ref.kind == kind)

    def generations(self) -> Mapping[Ref, int]:
        """Return the generation of every object."""
        return {ref: stored.generation for ref, (stored, _) in self._objects.items()}


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


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
        controller=str(spec.get("controllerName", "")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
