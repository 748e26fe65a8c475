"""Configurations of extensions: an ``Any`` of a message, or of a ``TypedStruct`` that stands for one."""

import json
import math
from typing import Any

from google.protobuf import any_pb2, struct_pb2
from udpa.type.v1 import typed_struct_pb2 as udpa_pb
from xds.type.v3 import typed_struct_pb2 as xds_pb

from authplane.base.problems import Problems, printable
from authplane.dataplane.config.messages import parse_message, parse_type_url
from authplane.filters.registry import Packed, Raw, Structured


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


def parse_struct(message: struct_pb2.Struct, problems: Problems) -> dict[str, Any] | None:
    """Read a JSON object, lists of it as tuples; None is a problem: no JSON has such a number, or it is nothing."""
    before = problems.error_count
    members = {}
    for key in sorted(message.fields):
        with problems.at(printable(key)):
            members[key] = _parse_value(message.fields[key], problems)
    return members if problems.error_count == before else None


def _parse_value(message: struct_pb2.Value, problems: Problems) -> Any:
    kind = message.WhichOneof("kind")
    match kind:
        case "number_value":
            if not math.isfinite(message.number_value):
                problems.add("NotJson", "is a number that JSON does not have")
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
            problems.add("NotJson", "is no value")
            return None
