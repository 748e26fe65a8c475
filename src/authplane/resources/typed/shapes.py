"""Readers made from the annotations of a kind: node to value, every problem with its path."""

import base64
import binascii
import difflib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from authplane.core.problems import Path, Problem, Severity
from authplane.core.secret import Secret
from authplane.core.text import name_some, shorten
from authplane.core.values import dataclass
from authplane.resources.typed.schema import Base64, Filled, Given, Limit, Named, OneOrMany, Unused, Upstream
from authplane.resources.typed.schema_limits import breach
from authplane.resources.yaml.nodes import Entry, Fields, Items, Node, Scalar, Shared, Value, is_null, value_of


class Invalid(Enum):
    """What a reader returns after it has reported an error."""

    INVALID = "invalid"


INVALID: Final = Invalid.INVALID


class Report:
    """Collects the problems of one document; a quiet one never repeats a value."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.problems: list[Problem] = []
        self._quiet = quiet

    def error(self, path: Path, reason: str, message: str) -> Invalid:
        """Record an error; its result is what a reader returns then."""
        self.problems.append(Problem(path, reason, message))
        return INVALID

    def warn(self, path: Path, reason: str, message: str) -> None:
        """Record a warning."""
        self.problems.append(Problem(path, reason, message, Severity.WARNING))

    def mismatch(self, path: Path, wanted: str, node: Node) -> Invalid:
        """Record that the document has something of another type."""
        advice = " Put it in quotes." if wanted == "a string" and isinstance(node, Scalar) else ""
        return self.error(path, "TypeMismatch", f"Expected {wanted}, got {self._described(node)}.{advice}")

    def beyond(self, path: Path, value: str | int, expected: str) -> Invalid:
        """Record a value outside its limits."""
        got = "" if self._quiet else f", got {_short(value)}"
        return self.error(path, "FieldInvalid", f"Expected {expected}{got}.")

    def _described(self, node: Node) -> str:
        match node:
            case Fields():
                return "a mapping"
            case Items():
                return "a list"
            case Scalar(text=text):
                return _scalar(value_of(node), "" if self._quiet else text)


Reader: TypeAlias = Callable[[Node, Path, Report], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The fields of a mapping in the document, and the value that is made of them."""

    make: Callable[..., object]
    readers: Mapping[str, tuple[str, Reader]]
    """By the name in the document: the attribute and its reader."""
    required: tuple[str, ...]
    filled: frozenset[str]
    """Names that need a value if they are present."""
    unused: frozenset[str]
    """Names that are read and have no effect."""
    upstream: Upstream
    mappings: Mapping[str, type]
    """The fields that are one mapping each, and its kind."""
    shorthand: str = ""
    """The field that a plain string sets; empty if a mapping is required."""


def shape_of(kind: type) -> Shape:
    """Return what the annotations of a dataclass say; they are read once."""
    return _shape(kind)


@cache
def _shape(kind: type) -> Shape:
    hints = get_type_hints(kind, include_extras=True)
    readers: dict[str, tuple[str, Reader]] = {}
    required: list[str] = []
    filled: set[str] = set()
    unused: set[str] = set()
    for each in fields(kind):
        limits = _limits(hints[each.name])
        name = next((limit.name for limit in limits if isinstance(limit, Named)), _camel(each.name))
        readers[name] = (each.name, reader_of(hints[each.name]))
        if each.default is MISSING and each.default_factory is MISSING:
            required.append(name)
        if Filled() in limits:
            filled.add(name)
        if Unused() in limits:
            unused.add(name)
    upstream: Upstream = getattr(kind, "UPSTREAM", Upstream())
    return Shape(
        make=kind,
        readers=readers,
        required=tuple(required),
        filled=frozenset(filled),
        unused=frozenset(unused),
        upstream=upstream,
        mappings={name: held for name, (child, _) in readers.items() if (held := _mapping_kind(hints[child]))},
        shorthand=getattr(kind, "SHORTHAND", ""),
    )


def _mapping_kind(hint: object) -> type | None:
    """Return the kind of the one mapping that an annotation describes; None if it describes anything else."""
    origin = get_origin(hint)
    if origin is Annotated or origin is Union or origin is types.UnionType:
        return next((kind for each in get_args(hint) if (kind := _mapping_kind(each))), None)
    return hint if isinstance(hint, type) and is_dataclass(hint) else None


def reader_of(hint: object, limits: tuple[Limit, ...] = ()) -> Reader:
    """Build the reader for an annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return reader_of(arguments[0], (*limits, *arguments[1:]))
    if origin is Union or origin is types.UnionType:
        (inner,) = (each for each in arguments if each is not type(None))
        return reader_of(inner, limits)
    if origin is tuple:
        return _list_reader(reader_of(arguments[0]), limits)
    if origin is Mapping:
        return _mapping_reader(_value_reader(arguments[1], limits))
    return _plain_reader(hint, limits)


def _plain_reader(hint: object, limits: tuple[Limit, ...]) -> Reader:
    if hint is str:
        return _text_reader(tuple(limit for limit in limits if not isinstance(limit, Named)))
    if hint is int:
        return _number_reader(limits)
    if hint is bool:
        return _read_presence if Given() in limits else _read_truth
    if isinstance(hint, type) and is_dataclass(hint):
        return _fields_reader(hint)
    raise TypeError(f"a field of a kind cannot be {hint}")


def read_fields(shape: Shape, node: Node, path: Path, report: Report, accepted: frozenset[str] = frozenset()) -> object:
    """Make the value of a mapping; names in ``accepted`` are read elsewhere."""
    if shape.shorthand and isinstance(node, Scalar):
        node = Fields({shape.shorthand: Entry(node, node.line, node.column)}, node.line, node.column)
    if not isinstance(node, Fields):
        return report.mismatch(path, "a mapping", node)
    values: dict[str, object] = {}
    sound = True
    for name, (child, _, _) in node.entries.items():
        known = shape.readers.get(name)
        if known is None:
            sound = (name in accepted or _tolerated(shape, name, child, path, report)) and sound
        elif not is_null(child):
            value = known[1](child, (*path, name), report)
            sound = sound and value is not INVALID
            if name in shape.unused and value is not INVALID:
                _warn_of_no_effect((*path, name), name, report)
            values[known[0]] = value
        elif name in shape.filled:
            report.error((*path, name), "FieldInvalid", f"{name!r} has no value. Set a value, or remove the line.")
            sound = False
    for name in shape.required:
        if shape.readers[name][0] not in values:
            report.error((*path, name), "FieldRequired", f"{name!r} is required. Add it.")
            sound = False
    return shape.make(**values) if sound else INVALID


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a further sentence that suggests the closest of the known words, or nothing."""
    close = difflib.get_close_matches(word[:64], tuple(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def step(path: Path, name: str) -> Path:
    """Go on to a field; a name that could garble a terminal is left out."""
    return (*path, name) if name.isprintable() and len(name) <= _LONGEST_NAME else path


_LONGEST_NAME: Final = 317
_LONGEST_SHOWN: Final = 60
_MOST_NAMED: Final = 12
"""So many fields are named where one is unknown."""
_INT64: Final = 2**63


def _tolerated(shape: Shape, name: str, node: Node, path: Path, report: Report) -> bool:
    """Judge a field that the shape does not model."""
    upstream = shape.upstream
    if name in upstream.silent:
        return True
    if name in upstream.ignored or name in upstream.refused:
        if name in upstream.ignored:
            if is_null(node):
                return True
            _warn_of_no_effect((*path, name), name, report)
            return True
        message = f"{name!r} restricts access, but authplane does not enforce it. Remove it to use this resource."
        report.error((*path, name), "FieldNotEnforced", message)
        return False
    known = (*shape.readers, *upstream.silent, *upstream.ignored, *upstream.refused)
    deeper = [f"{field}.{name}" for field, kind in shape.mappings.items() if name in shape_of(kind).readers]
    meant = f" Did you mean {deeper[0]!r}?" if deeper else suggestion(name, known)
    supported = f" Supported: {name_some(sorted(shape.readers), _MOST_NAMED)}."
    report.error(step(path, name), "FieldUnknown", f"Unknown field {_short(name)}.{meant or supported}")
    return False


def _warn_of_no_effect(path: Path, name: str, report: Report) -> None:
    report.warn(
        path, "FieldNotSupported", f"{name!r} is not supported and has no effect. Remove it, or ignore this warning."
    )


def _fields_reader(kind: type) -> Reader:
    shape = shape_of(kind)

    def read(node: Node, path: Path, report: Report) -> object:
        if not isinstance(node, Shared):
            return read_fields(shape, node, path, report)
        value = node.made.get(kind)
        if value is None:
            before = len(report.problems)
            value = read_fields(shape, node, path, report)
            if len(report.problems) == before:
                node.made[kind] = value
        return value

    return read


def _text_reader(limits: tuple[Limit, ...]) -> Reader:
    def read(node: Node, path: Path, report: Report) -> object:
        if not isinstance(node, Scalar) or (node.plain and not isinstance(value_of(node), str)):
            return report.mismatch(path, "a string", node)
        for limit in limits:
            expected = breach(limit, node.text)
            if expected:
                return report.beyond(path, node.text, expected)
        return node.text

    return read


def _number_reader(limits: tuple[Limit, ...]) -> Reader:
    def read(node: Node, path: Path, report: Report) -> object:
        value = value_of(node) if isinstance(node, Scalar) else None
        if not isinstance(value, int) or isinstance(value, bool):
            return report.mismatch(path, "an integer", node)
        for limit in limits:
            expected = breach(limit, value)
            if expected:
                return report.beyond(path, value, expected)
        return value if -_INT64 <= value < _INT64 else report.beyond(path, value, "a 64-bit integer")

    return read


def _read_truth(node: Node, path: Path, report: Report) -> object:
    value = value_of(node) if isinstance(node, Scalar) else None
    return value if isinstance(value, bool) else report.mismatch(path, "true or false", node)


def _read_presence(_node: Node, _path: Path, _report: Report) -> object:
    return True


def _list_reader(read_item: Reader, limits: tuple[Limit, ...]) -> Reader:
    alone = OneOrMany() in limits

    def read(node: Node, path: Path, report: Report) -> object:
        if alone and not isinstance(node, Items):
            items = () if isinstance(node, Fields) and not node.entries else (node,)
            node = Items(items, node.line, node.column)
        if not isinstance(node, Items):
            return report.mismatch(path, "a list", node)
        for limit in limits:
            expected = breach(limit, node.items)
            if expected:
                return report.error(path, "FieldInvalid", f"Expected {expected}, got {len(node.items)}.")
        values = tuple([read_item(item, (*path, index), report) for index, item in enumerate(node.items)])
        return INVALID if INVALID in values else values

    return read


def _mapping_reader(read_value: Reader) -> Reader:
    def read(node: Node, path: Path, report: Report) -> object:
        if not isinstance(node, Fields):
            return report.mismatch(path, "a mapping", node)
        values = {
            name: read_value(child, step(path, name), report)
            for name, (child, _, _) in node.entries.items()
            if not is_null(child)
        }
        return INVALID if INVALID in values.values() else MappingProxyType(values)

    return read


def _value_reader(hint: object, limits: tuple[Limit, ...]) -> Reader:
    """Build the reader for a value of a mapping, which may be a secret."""
    if get_origin(hint) is not Secret:
        return reader_of(hint)
    read_text = _text_reader(())
    encoded = any(isinstance(limit, Base64) for limit in limits)

    def read(node: Node, path: Path, report: Report) -> object:
        text = read_text(node, path, report)
        if not isinstance(text, str):
            return INVALID
        return _bytes(text, path, report) if encoded else Secret(text.encode())

    return read


def _bytes(text: str, path: Path, report: Report) -> object:
    try:
        # Kubernetes accepts a long value on several lines.
        return Secret(base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True))
    except (binascii.Error, ValueError):
        return report.error(
            path, "FieldInvalid", "The value is not base64. Encode it, or move the text to 'stringData'."
        )


def _limits(hint: object) -> tuple[Limit, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _scalar(value: Value, text: str) -> str:
    """Describe a scalar; without its text where that must not be shown."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the boolean {text}" if text else "a boolean"
        case int() | float():
            return f"the number {shorten(text, _LONGEST_SHOWN)}" if text else "a number"
        case str():
            return f"the string {_short(value)}" if text or not value else "a string"


def _short(value: str | int) -> str:
    return shorten(repr(value), _LONGEST_SHOWN)
