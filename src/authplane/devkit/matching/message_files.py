"""Messages of protobuf that people write as YAML or JSON: every problem with the path to it, as the file spells it.

The form is that of protobuf's own JSON; names of fields may be written as in the ``.proto`` files too.
"""

import difflib
import re
from typing import Any, Final, TypeAlias

from google.protobuf import any_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message

from authplane.core.problems import Path, printable
from authplane.devkit.strict_files import json_of
from authplane.resources.typed.shapes import Report
from authplane.resources.yaml.nodes import Fields, Items, Node, Scalar, is_null, value_of

Described: TypeAlias = Any
"""A descriptor: each engine of protobuf has types of its own for them."""

TYPE: Final = "@type"
_NUMBER: Final = re.compile(r"-?[0-9]{1,9}")
_ANY: Final = "google.protobuf.Any"


def fill(message: Message, node: Node, path: Path, report: Report) -> None:
    """Fill in a message from what is written; what has a problem is left out."""
    descriptor = message.DESCRIPTOR
    if descriptor.full_name == _ANY and isinstance(message, any_pb2.Any):
        _fill_any(message, node, path, report)
    elif descriptor.full_name.startswith("google.protobuf."):
        _convert(message, json_of(node, path, report), path, report)
    elif isinstance(node, Fields):
        _fill_fields(message, node, path, report)
    else:
        report.mismatch(path, "a mapping", node)


def spelled(node: Node | None, path: Path) -> Path:
    """Return the path to a field as the file spells it, or to its nearest parent in the file."""
    found: list[str | int] = []
    for step in path:
        match node:
            case Fields(entries=entries) if isinstance(step, str):
                name = next((name for name in entries if step in _spellings(name)), None)
                if name is None:
                    break
                node = entries[name].node
                found.append(name)
            case Items(items=items) if isinstance(step, int) and step < len(items):
                node = items[step]
                found.append(step)
            case _:
                break
    return tuple(found)


def _spellings(name: str) -> set[str]:
    """Return how problems may call a name that the file has."""
    snake = "".join(f"_{each.lower()}" if "A" <= each <= "Z" else each for each in name)
    return {name, printable(name), snake} | ({"type_url"} if name == TYPE else set())


def _fill_fields(message: Message, node: Fields, path: Path, report: Report, *, besides: str = "") -> None:
    fields = message.DESCRIPTOR.fields_by_name
    camel = message.DESCRIPTOR.fields_by_camelcase_name
    groups: dict[str, str] = {}
    for name, entry in node.entries.items():
        field = camel.get(name) or fields.get(name)
        here = (*path, name)
        if name == besides:
            continue
        if field is None:
            report.error(here, "FieldUnknown", _unknown(name, message.DESCRIPTOR))
        elif not is_null(entry.node):
            group = field.containing_oneof
            if group is not None and groups.setdefault(group.name, name) != name:
                report.error(
                    here,
                    "FieldInvalid",
                    f"'{groups[group.name]}' and '{name}' are mutually exclusive. Remove one of them.",
                )
            else:
                _fill_field(message, field, entry.node, here, report)


def _fill_field(message: Message, field: Described, node: Node, path: Path, report: Report) -> None:
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        _fill_map(message, field, node, path, report)
    elif field.is_repeated:
        _fill_list(message, field, node, path, report)
    elif inner is not None:
        below: Message = getattr(message, field.name)
        below.SetInParent()
        fill(below, node, path, report)
    elif _fits(field, node, path, report):
        _convert(message, {field.name: json_of(node, path, report)}, path, report)


def _fill_map(message: Message, field: Described, node: Node, path: Path, report: Report) -> None:
    if not isinstance(node, Fields):
        report.mismatch(path, "a mapping", node)
        return
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    if value.message_type is None:
        # Protobuf replaces a map as a whole.
        fitting = {
            name: each.node for name, each in node.entries.items() if _fits(value, each.node, (*path, name), report)
        }
        _convert(
            message, {field.name: {name: json_of(each, path, report) for name, each in fitting.items()}}, path, report
        )
        return
    is_text = key.cpp_type == FieldDescriptor.CPPTYPE_STRING
    for name, entry in node.entries.items():
        if is_text or _NUMBER.fullmatch(name):
            fill(getattr(message, field.name)[name if is_text else int(name)], entry.node, (*path, name), report)
        else:
            report.error((*path, name), "FieldInvalid", "The key is not a number. Use a number as the key.")


def _fill_list(message: Message, field: Described, node: Node, path: Path, report: Report) -> None:
    if not isinstance(node, Items):
        report.mismatch(path, "a list", node)
    elif field.message_type is not None:
        for index, each in enumerate(node.items):
            fill(getattr(message, field.name).add(), each, (*path, index), report)
    else:
        # Protobuf replaces a list as a whole.
        fitting = [each for index, each in enumerate(node.items) if _fits(field, each, (*path, index), report)]
        _convert(message, {field.name: [json_of(each, path, report) for each in fitting]}, path, report)


def _fill_any(message: any_pb2.Any, node: Node, path: Path, report: Report) -> None:
    if not isinstance(node, Fields):
        report.mismatch(path, "a mapping", node)
        return
    entry = node.entries.get(TYPE)
    url = value_of(entry.node) if entry is not None and isinstance(entry.node, Scalar) else None
    if not isinstance(url, str) or not url.rpartition("/")[2]:
        report.error(
            (*path, TYPE), "FieldRequired", f"The type of the message is missing. Set it, for example to '{_EXAMPLE}'."
        )
        return
    descriptor = _known(url.rpartition("/")[2])
    if descriptor is None:
        message.type_url = url
        report.warn(
            (*path, TYPE),
            "TypeUnknown",
            f"authplane does not know the type '{url}', so it does not check the fields. Ignore this if intended.",
        )
        return
    inner: Message = message_factory.GetMessageClass(descriptor)()
    if descriptor.full_name.startswith("google.protobuf."):
        value = node.entries.get("value")
        if value is not None:
            fill(inner, value.node, (*path, "value"), report)
    else:
        _fill_fields(inner, node, path, report, besides=TYPE)
    message.type_url = url
    message.value = inner.SerializeToString(deterministic=True)


_EXAMPLE: Final = "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput"


def _known(name: str) -> Descriptor | None:
    try:
        return descriptor_pool.Default().FindMessageTypeByName(name)
    except KeyError:
        return None


def _fits(field: Described, node: Node, path: Path, report: Report) -> bool:
    """Tell whether a scalar is of the right sort; numbers and enumerations are protobuf's own business."""
    value = value_of(node) if isinstance(node, Scalar) else None
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if not isinstance(value, str):
            report.mismatch(path, "a string", node)
        case FieldDescriptor.CPPTYPE_BOOL if not isinstance(value, bool):
            report.mismatch(path, "true or false", node)
        case _ if value is None or (isinstance(value, bool) and field.cpp_type != FieldDescriptor.CPPTYPE_BOOL):
            report.mismatch(path, "a value", node)
        case _:
            return True
    return False


def _convert(message: Message, value: Any, path: Path, report: Report) -> None:
    try:
        ParseDict(value, message)
    except (ParseError, TypeError, ValueError, AttributeError) as error:
        # The last of nested messages is the one about the field itself.
        said = str(error).rpartition(" field: ")[2].partition(" at ")[0]
        report.error(path, "FieldInvalid", f"{said.rstrip('.')}. Use a value of the field's type.")


def _unknown(name: str, descriptor: Described) -> str:
    known = [field.camelcase_name for field in descriptor.fields]
    close = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean '{close[0]}'?" if close else "Remove it."
    return f"'{name}' is not a field of {descriptor.name}. {remedy}"
