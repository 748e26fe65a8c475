"""Smaller cases that still differ."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def shrunk(case: T, smaller: Callable[[T], Iterator[T]], differs: Callable[[T], bool], most: int = 2_000) -> T:
    """Return a case of which nothing more can be left out; at most so many are tried."""
    tried = 0
    found: T | None = case
    while found is not None:
        case, found = found, None
        for each in smaller(case):
            tried += 1
            if tried > most:
                return case
            if differs(each):
                found = each
                break
    return case


def smaller_messages(message: M) -> Iterator[M]:
    """Return copies that have one thing less, larger things first."""
    for field, value in message.ListFields():
        if _is_map(field):
            yield from _with(message, field.name, value, sorted(value))
        elif field.is_repeated:
            yield from _with(message, field.name, value, range(len(value)))
        elif field.message_type is not None:
            copy = _copy(message)
            copy.ClearField(field.name)
            yield copy
            for each in smaller_messages(value):
                copy = _copy(message)
                getattr(copy, field.name).CopyFrom(each)
                yield copy


def _with(message: M, name: str, held: Any, places: Any) -> Iterator[M]:
    """Leave out one of several things, or something of one of them."""
    for place in places:
        copy = _copy(message)
        del getattr(copy, name)[place]
        yield copy
    for place in places:
        for each in smaller_messages(held[place]) if isinstance(held[place], Message) else ():
            copy = _copy(message)
            getattr(copy, name)[place].CopyFrom(each)
            yield copy


def _copy(message: M) -> M:
    made = type(message)()
    made.CopyFrom(message)
    return made


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
