"""Parses the native inputs: each is a ``TypedStruct``, so that servers without support reject it.

They are part of an optional override. Other servers skip it, because its type overrides none of their filters.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from google.protobuf import any_pb2

from authplane.core.problems import Problems
from authplane.dataplane.filters.calls import Call
from authplane.dataplane.filters.composite.native.native_inputs import PlainInput, WorkloadInput
from authplane.dataplane.filters.extensions.wire import parse_extension
from authplane.dataplane.filters.registry import Structured
from authplane.matching.matcher_tree import Input
from authplane.matching.tree_wire import InputKind, ValueType

CARRIER: Final = "envoy.config.core.v3.TypedExtensionConfig"
"""The type of the override; its name is `NAME`, and its configuration what any other override of the filter is."""
NAME: Final = "authplane.native"
_STRUCT: Final = "xds.type.v3.TypedStruct"
_PLAIN: Final = "authplane.native.v1.PlainCall"
_WORKLOAD: Final = "authplane.native.v1.Workload"


def parse_native_input(data: bytes, problems: Problems) -> Input[Call, str] | None:
    """Read one of the inputs; None is a problem."""
    raw = parse_extension(any_pb2.Any(type_url=f"type.googleapis.com/{_STRUCT}", value=data), problems)
    if not isinstance(raw, Structured):
        return None
    parse = _INPUTS.get(raw.type_name)
    if parse is None:
        problems.add("TypeUnknown", f"'{raw.type_name}' is not a supported input. Use another input.")
        return None
    return parse(json.loads(raw.json), problems)


NATIVE_INPUTS: Final = {_STRUCT: InputKind(ValueType.TEXT, parse_native_input)}


def _parse_plain(members: dict[str, Any], problems: Problems) -> PlainInput | None:
    before = problems.error_count
    names = {}
    for field in ("absent", "single"):
        with problems.at("value", field):
            # Without a list of what to look for, every call would do.
            found = members.pop(field, None)
            if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
                problems.add("Invalid", "The value is not a list of strings. Use a list of strings.")
                found = []
            names[field] = frozenset(found)
    _refuse_others(members, problems)
    return PlainInput(**names) if problems.error_count == before else None


def _parse_workload(members: dict[str, Any], problems: Problems) -> WorkloadInput | None:
    before = problems.error_count
    _refuse_others(members, problems)
    return WorkloadInput() if problems.error_count == before else None


def _refuse_others(members: dict[str, Any], problems: Problems) -> None:
    """Report unknown fields: they may require more."""
    for name in sorted(members):
        with problems.at("value", name):
            problems.add("FieldUnknown", "The field is unknown. Remove it.")


_INPUTS: Final[dict[str, Callable[[dict[str, Any], Problems], Input[Call, str] | None]]] = {
    _PLAIN: _parse_plain,
    _WORKLOAD: _parse_workload,
}
