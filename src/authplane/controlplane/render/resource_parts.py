"""Resources as parts, so that only the changed part of a large one is rendered and serialized again.

A serialized message may be continued with more entries of a repeated field: parsers read them all. So a listener with
ten thousand filter chains is the bytes of the listener and the bytes of the chains, one after another.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message

from authplane.controlplane.render.varint import varint
from authplane.core.memo import Generations, Memo, Same
from authplane.core.values import dataclass

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Part:
    """A message, what it is rendered from, and how."""

    kind: str
    """What is made of the source."""
    source: object
    """The same object gives the same message."""
    render: "Callable[[], Message | Whole[Any]]"
    beside: object = None
    """Values that matter too; equal ones give the same message."""


@dataclass(frozen=True, slots=True)
class Single(Generic[M]):
    """A resource that is one part; its message contains its name."""

    part: Part


@dataclass(frozen=True, slots=True)
class Whole(Generic[M]):
    """A message whose repeated field has a part for each entry; some of these may be made of parts themselves."""

    name: str
    shell: M
    """Everything but the field."""
    field: str
    parts: "tuple[Part | Whole[Any], ...]"


Resource: TypeAlias = Single[M] | Whole[M]


def message_of(resource: Resource[M]) -> M:
    """Render a resource."""
    made: M = _message(resource.part if isinstance(resource, Single) else resource)
    return made


def _message(made: Part | Message | Whole[Any]) -> Any:
    if isinstance(made, Part):
        return _message(made.render())
    if not isinstance(made, Whole):
        return made
    message = type(made.shell)()
    message.CopyFrom(made.shell)
    getattr(message, made.field).extend(map(_message, made.parts))
    return message


_Key: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Serialized:
    """The bytes of a part, the name in them, and what they are made of in turn."""

    part: Part
    name: str
    body: bytes
    length: bytes
    """The length prefix of the bytes in a field."""
    parts: "Mapping[_Key, _Serialized]"


class Bodies(Generations[_Key, _Serialized]):
    """Serialized parts."""

    def __init__(self) -> None:
        super().__init__()
        self.memo: Final[Memo[Same, Any]] = Memo()
        """What connection managers have to know, by their hosts."""

    def start(self, common: object = None) -> None:
        """Begin a generation, for all that is remembered here."""
        super().start(common)
        self.memo.start(common)

    def serialize(self, resources: Iterable[Resource[M]]) -> dict[str, bytes]:
        """Return the bytes of resources by name."""
        bodies: dict[str, bytes] = {}
        for resource in resources:
            if isinstance(resource, Single):
                made = self._part(resource.part, {})
                name, body = made.name, made.body
            else:
                name, body = resource.name, b"".join(self._pieces(resource, {}))
            if name in bodies:
                raise ValueError(f"two resources are named {name!r}")
            bodies[name] = body
        return bodies

    def _pieces(self, whole: Whole[Any], used: dict[_Key, _Serialized]) -> list[bytes]:
        """Return the bytes of a message, one piece after another; they are joined once, at any depth."""
        tag = _tag(whole.shell.DESCRIPTOR.fields_by_name[whole.field].number)
        pieces = [whole.shell.SerializeToString(deterministic=True)]
        for part in whole.parts:
            if isinstance(part, Whole):
                inner = self._pieces(part, used)
                pieces += (tag, varint(sum(map(len, inner))), *inner)
            else:
                made = self._part(part, used)
                pieces += (tag, made.length, made.body)
        return pieces

    def _part(self, part: Part, used: dict[_Key, _Serialized]) -> _Serialized:
        """Return a part; it is among what is ``used`` then."""
        # The source is kept beside the bytes, so no other object can have its id meanwhile.
        key = part.kind, id(part.source)
        known = self.now.get(key) or self.before.get(key)
        if known is None or known.part.source is not part.source or not _same(known.part.beside, part.beside):
            known = self._serialize(part)
        elif known.parts:
            # The next change needs the rest.
            self.now |= known.parts
        self.now[key] = used[key] = known
        return known

    def _serialize(self, part: Part) -> _Serialized:
        made, used = part.render(), dict[_Key, _Serialized]()
        if isinstance(made, Whole):
            name, body = made.name, b"".join(self._pieces(made, used))
        else:
            name, body = _name(made), made.SerializeToString(deterministic=True)
        return _Serialized(part, name, body, varint(len(body)), used)


def _name(message: Message) -> str:
    """Return the name of a resource; endpoints have that of their cluster."""
    name: str = getattr(message, "name", "") or getattr(message, "cluster_name", "")
    return name


def _same(known: object, now: object) -> bool:
    return known is now or known == now


def _tag(number: int) -> bytes:
    """Write the tag of a message in a field (wire type 2)."""
    return varint(number << 3 | 2)
