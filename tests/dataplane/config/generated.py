"""Resources that were good, with a few of their fields changed at random."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

TEXTS: Final = ("", "a", "*", "*a", "a.b", "/a/b", "/a/", "10.0.0.1", "::1", "x-bin", "[", "own", ":authority", "A")
NUMBERS: Final = (0, 1, 2, 100, 101, 1_000_000, 2**31 - 1)
_SIGNED: Final = frozenset({FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64})
_FLOATS: Final = frozenset({FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT})


def changed(resource: Message, random: Random) -> Message:
    """Return a copy with one field or more set, added to or cleared."""
    made = type(resource)()
    made.CopyFrom(resource)
    for _ in range(random.choice((1, 1, 2, 3))):
        _change(made, random)
    return made


def _change(message: Message, random: Random) -> None:
    target = random.choice(list(_parts(message)))
    inner = _unpacked(target) if isinstance(target, any_pb2.Any) and random.random() < 0.85 else None
    if inner is not None and isinstance(target, any_pb2.Any):
        _change(inner, random)
        target.value = inner.SerializeToString()
        return
    there = [field for field, _ in target.ListFields()]
    if there and random.random() < 0.25:
        target.ClearField(random.choice(there).name)
        return
    possible: list[Any] = list(target.DESCRIPTOR.fields)
    if possible:
        _set(target, random.choice(possible), random)


def _parts(message: Message) -> Iterator[Message]:
    """Yield a message and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if _is_map(field):
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(value):
                    yield from _parts(value[key])
        else:
            for each in value if field.is_repeated else (value,):
                yield from _parts(each)


def _unpacked(packed: any_pb2.Any) -> Message | None:
    try:
        kind = descriptor_pool.Default().FindMessageTypeByName(packed.type_url.rpartition("/")[2])
        return message_factory.GetMessageClass(kind).FromString(packed.value)
    except (KeyError, DecodeError):
        return None


def _set(target: Message, field: FieldDescriptor, random: Random) -> None:
    if field.message_type is not None and _is_map(field):
        of = field.message_type.fields_by_name["value"]
        members: Any = getattr(target, field.name)
        if of.message_type is None:
            members[random.choice(TEXTS)] = _value(of, random)
        else:
            members[random.choice(TEXTS)].SetInParent()
    elif field.is_repeated:
        members = getattr(target, field.name)
        if field.message_type is None:
            members.append(_value(field, random))
        elif len(members) and random.random() < 0.5:
            members.add().CopyFrom(members[0])
        else:
            members.add()
    elif field.message_type is None:
        setattr(target, field.name, _value(field, random))
    else:
        getattr(target, field.name).SetInParent()


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _value(field: FieldDescriptor, random: Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return random.choice((b"", b"\x08\x01", b"\xff"))
        case FieldDescriptor.CPPTYPE_STRING:
            return random.choice(TEXTS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return random.choice((True, False))
        case FieldDescriptor.CPPTYPE_ENUM if field.enum_type is not None:
            return random.choice([each.number for each in field.enum_type.values])
        case kind if kind in _FLOATS:
            return random.choice((0.0, -1.0, 50.0, float("nan")))
        case kind:
            return random.choice((*NUMBERS, -1) if kind in _SIGNED else NUMBERS)
