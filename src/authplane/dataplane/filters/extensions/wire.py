"""Parses configurations of extensions: an ``Any`` with a message, or with a ``TypedStruct`` in place of one."""

import json
import math
from typing import Any, TypeVar

from google.protobuf import any_pb2, struct_pb2
from google.protobuf.message import DecodeError, Message
from udpa.type.v1 import typed_struct_pb2 as udpa_pb
from xds.type.v3 import typed_struct_pb2 as xds_pb

from authplane.core.problems import Problem, Problems, printable
from authplane.dataplane.filters.registry import FilterConfig, FilterType, Packed, Raw, Scope, Structured

M = TypeVar("M", bound=Message)


def parse_extension(message: any_pb2.Any, problems: Problems) -> Raw | None:
    """Read a configuration; None is a problem."""
    name = parse_type_url(message.type_url, problems)
    if name is None:
        return None
    match name:
        case "xds.type.v3.TypedStruct":
            return _parse_struct(xds_pb.TypedStruct, message.value, problems)
        case "udpa.type.v1.TypedStruct":
            return _parse_struct(udpa_pb.TypedStruct, message.value, problems)
        case _:
            return Packed(name, message.value)


def parse_filter(kind: FilterType, raw: Raw, scope: Scope, problems: Problems) -> FilterConfig | None:
    """Read the configuration of a filter of a known kind; None is a problem."""
    match raw:
        case Packed():
            made = kind.parse(raw, scope)
        case Structured() if kind.parse_structured is not None:
            made = kind.parse_structured(raw, scope)
        case Structured():
            problems.add(
                "FormUnsupported", f"{raw.type_name} as a TypedStruct is not supported here. Use the message itself."
            )
            return None
    if isinstance(made, tuple):
        add_below(made, problems)
        return None
    return made


def parse_message(kind: type[M], data: bytes, problems: Problems) -> M | None:
    """Read a message; None if the bytes are none, which is a problem."""
    try:
        return kind.FromString(data)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {kind.DESCRIPTOR.full_name}.")
        return None


def parse_type_url(url: str, problems: Problems) -> str | None:
    """Return the name of the message that a type URL names; None is a problem."""
    with problems.at("type_url"):
        if not url:
            problems.add("Missing", "This field is required. Add it.")
            return None
        _, slash, name = url.rpartition("/")
        if not slash or not name:
            problems.add("TypeUrlInvalid", f"'{url}' is not a type URL. Use a prefix, a slash and a message name.")
            return None
        return name


def add_below(found: tuple[Problem, ...], problems: Problems) -> None:
    """Report problems whose paths begin here."""
    for problem in found:
        with problems.at(*problem.path):
            problems.add(problem.reason, problem.message)


def parse_struct(message: struct_pb2.Struct, problems: Problems) -> dict[str, Any] | None:
    """Read a JSON object, lists of it as tuples; None is a problem: no JSON has such a number, or it is nothing."""
    before = problems.error_count
    members = {}
    for key in sorted(message.fields):
        with problems.at(printable(key)):
            members[key] = _parse_value(message.fields[key], problems)
    return members if problems.error_count == before else None


def _parse_struct(
    kind: type[xds_pb.TypedStruct] | type[udpa_pb.TypedStruct], data: bytes, problems: Problems
) -> Structured | None:
    with problems.at("value"):
        typed = parse_message(kind, data, problems)
        if typed is None:
            return None
        name = parse_type_url(typed.type_url, problems)
        if name is None:
            return None
        with problems.at("value"):
            members = parse_struct(typed.value, problems)
        return None if members is None else Structured(name, json.dumps(members, sort_keys=True))


def _parse_value(message: struct_pb2.Value, problems: Problems) -> Any:
    kind = message.WhichOneof("kind")
    match kind:
        case "number_value":
            if not math.isfinite(message.number_value):
                problems.add("NotJson", "The number is not finite. Use a finite number.")
            return message.number_value
        case "string_value" | "bool_value":
            return getattr(message, kind)
        case "struct_value":
            return parse_struct(message.struct_value, problems)
        case "list_value":
            return tuple(_parse_value(each, problems) for each in message.list_value.values)
        case "null_value":
            return None
        case _:
            problems.add("NotJson", "The value is missing. Set it.")
            return None
