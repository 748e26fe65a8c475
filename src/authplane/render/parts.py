"""Resources as parts, so that of a large one only the part that changed is rendered and serialized again.

A serialized message may be continued with more entries of a repeated field: whoever parses the bytes finds them all. So
a listener with ten thousand filter chains is the bytes of the listener and the bytes of the chains, one after another.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from google.protobuf.message import Message

from authplane.render.varint import varint

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Part:
    """A message, what it is rendered from, and how."""

    kind: str
    """What is made of the source."""
    source: object
    """The same object gives the same message."""
    render: Callable[[], Message]
    beside: object = None
    """Values that matter too; equal ones give the same message."""


@dataclass(frozen=True, slots=True)
class Single(Generic[M]):
    """A resource that is one part; its message holds its name."""

    part: Part


@dataclass(frozen=True, slots=True)
class Whole(Generic[M]):
    """A resource whose repeated field has a part for each entry."""

    name: str
    shell: M
    """Everything but the field."""
    field: str
    parts: tuple[Part, ...]


Resource: TypeAlias = Single[M] | Whole[M]


def message_of(resource: Resource[M]) -> M:
    """Render a resource."""
    if isinstance(resource, Single):
        made: M = resource.part.render()  # type: ignore[assignment]
        return made
    message: M = type(resource.shell)()
    message.CopyFrom(resource.shell)
    getattr(message, resource.field).extend(part.render() for part in resource.parts)
    return message


class Bodies:
    """Serialized parts of this generation and of the one before it."""

    def __init__(self) -> None:
        self._before: Mapping[tuple[str, int], tuple[Part, tuple[str, bytes]]] = {}
        self._now: dict[tuple[str, int], tuple[Part, tuple[str, bytes]]] = {}

    def next_generation(self) -> None:
        """Forget what the last generation did not need."""
        self._before, self._now = self._now, {}

    def serialize(self, resources: Iterable[Resource[M]]) -> dict[str, bytes]:
        """Return the bytes of resources by name."""
        bodies: dict[str, bytes] = {}
        for resource in resources:
            if isinstance(resource, Single):
                name, body = self._part(resource.part)
            else:
                name, body = resource.name, self._whole(resource)
            if name in bodies:
                raise ValueError(f"two resources are named {name!r}")
            bodies[name] = body
        return bodies

    def _whole(self, resource: Whole[M]) -> bytes:
        tag = _tag(resource.shell.DESCRIPTOR.fields_by_name[resource.field].number)
        pieces = [resource.shell.SerializeToString(deterministic=True)]
        for part in resource.parts:
            _, body = self._part(part)
            pieces += (tag, varint(len(body)), body)
        return b"".join(pieces)

    def _part(self, part: Part) -> tuple[str, bytes]:
        """Return the name and the bytes of a part."""
        # The source is kept beside the bytes, so no other object can have its id meanwhile.
        key = part.kind, id(part.source)
        known = self._now.get(key) or self._before.get(key)
        if known is None or known[0].source is not part.source or not _same(known[0].beside, part.beside):
            message = part.render()
            known = part, (_name(message), message.SerializeToString(deterministic=True))
        self._now[key] = known
        return known[1]


def _name(message: Message) -> str:
    """Return the name of a resource; endpoints have that of their cluster."""
    name: str = getattr(message, "name", "") or getattr(message, "cluster_name", "")
    return name


def _same(known: object, now: object) -> bool:
    return known is now or known == now


def _tag(number: int) -> bytes:
    """Write what stands before a message in a field (wire type 2)."""
    return varint(number << 3 | 2)
