"""Writes the JSON Schema of all kinds, for editors, from the annotations that the readers are made from.

``python tools/gen_schemas.py`` writes ``src/authplane/resources/schemas/authplane.schema.json``; a test compares it.
"""

import ast
import inspect
import json
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from authplane.core.secret import Secret
from authplane.resources.catalogue import KINDS
from authplane.resources.kinds.agentic import McpBackend
from authplane.resources.typed.schema import (
    Given,
    Length,
    Limit,
    Matches,
    OneNumberOf,
    OneOf,
    OneOrMany,
    Range,
    Unused,
    Upstream,
)
from authplane.resources.typed.shapes import shape_of

FILE: Final = Path("src/authplane/resources/schemas/authplane.schema.json")
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
NO_EFFECT: Final = "authplane accepts this field, and it has no effect."
NOT_ENFORCED: Final = "authplane does not enforce this field and refuses the resource while it is set."

Schema: TypeAlias = dict[str, Any]

_TOGETHER: Final[Mapping[type, Schema]] = {
    McpBackend: {
        "if": {"required": ["url"]},
        "then": {"properties": {"port": {"type": "null"}, "path": {"type": "null"}}},
        "else": {"required": ["port"]},
    }
}
"""What fields demand of each other, where annotations cannot say it."""


def schema_of_kinds() -> Schema:
    """Return one schema for all kinds: the API version and the kind choose."""
    found: dict[str, type] = {}
    choices = []
    for (version, kind), made in KINDS.items():
        collect(made, found)
        chosen = {"apiVersion": {"const": version}, "kind": {"const": kind}}
        then = {"$ref": f"#/definitions/{made.__name__}"}
        choices.append({"if": {"properties": chosen, "required": list(chosen)}, "then": then})
    return {
        "$schema": _DRAFT,
        "title": "Resources of authplane",
        "type": "object",
        "required": ["apiVersion", "kind"],
        "properties": {
            "apiVersion": {"type": "string", "examples": sorted({version for version, _ in KINDS})},
            "kind": {"type": "string", "examples": sorted({kind for _, kind in KINDS})},
        },
        "allOf": choices,
        "definitions": {name: _definition(made) for name, made in sorted(found.items())},
    }


def collect(kind: type, found: dict[str, type]) -> None:
    """Add a kind and all that its fields contain, by name."""
    known = found.setdefault(kind.__name__, kind)
    if known is not kind:
        raise TypeError(f"two kinds are called {kind.__name__}")
    for hint in get_type_hints(kind, include_extras=True).values():
        for held in _kinds_in(hint):
            if held.__name__ not in found:
                collect(held, found)


def _kinds_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and is_dataclass(hint) and get_origin(hint) is None:
        yield hint
    for each in get_args(hint):
        yield from _kinds_in(each)


def _definition(kind: type) -> Schema:
    shape = shape_of(kind)
    hints = get_type_hints(kind, include_extras=True)
    said = descriptions(kind)
    properties: dict[str, Schema] = {}
    if kind in KINDS.values():
        properties = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "status": {}}
    for name, (attribute, _) in shape.readers.items():
        written = _schema(hints[attribute])
        if name not in shape.required and name not in shape.filled:
            written = _or_null(written)
        properties[name] = ({"description": said[attribute]} if attribute in said else {}) | written
    upstream: Upstream = shape.upstream
    properties |= {name: {} for name in upstream.silent}
    properties |= {name: {"description": NO_EFFECT} for name in upstream.ignored}
    properties |= {name: {"description": NOT_ENFORCED, "not": {}} for name in upstream.refused}
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if shape.required:
        made["required"] = list(shape.required)
    made |= _TOGETHER.get(kind, {})
    if shape.shorthand:
        made = {"anyOf": [made, properties[shape.shorthand]]}
    return {"description": flat(inspect.getdoc(kind) or "")} | made


def _or_null(schema: Schema) -> Schema:
    """Let a field be there without a value, which means the same as if it were not there."""
    kind = schema.get("type")
    if not schema or (kind is None and "anyOf" not in schema and "$ref" not in schema):
        return schema
    if isinstance(kind, str) and "enum" not in schema:
        return schema | {"type": [kind, "null"]}
    rest = {name: schema[name] for name in ("description",) if name in schema}
    return rest | {"anyOf": [{name: each for name, each in schema.items() if name not in rest}, {"type": "null"}]}


def _schema(hint: object, limits: tuple[Limit, ...] = ()) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _schema(arguments[0], (*limits, *arguments[1:]))
    if origin is Union or origin is types.UnionType:
        (inner,) = (each for each in arguments if each is not type(None))
        return _schema(inner, limits)
    if origin is tuple:
        several: Schema = {"type": "array", "items": _schema(arguments[0])}
        several |= {key: each for limit in limits for key, each in of_list(limit).items()}
        return {"anyOf": [several, several["items"], {"type": "object", "maxProperties": 0}]} \
            if OneOrMany() in limits else several  # fmt: skip
    if origin is Mapping:
        secret = get_origin(arguments[1]) is Secret
        value = {"type": "string"} if secret else _schema(arguments[1])
        return {"type": "object", "additionalProperties": _or_null(value)}
    return _plain(hint, limits)


def _plain(hint: object, limits: tuple[Limit, ...]) -> Schema:
    if hint is bool:
        return {} if Given() in limits else {"type": "boolean"}
    if isinstance(hint, type) and is_dataclass(hint):
        return {"$ref": f"#/definitions/{hint.__name__}"}
    kind = {str: "string", int: "integer"}[hint]  # type: ignore[index]
    made: Schema = {"type": kind} | ({"description": NO_EFFECT} if Unused() in limits else {})
    for limit in limits:
        made |= of_value(limit)
    return made


def of_value(limit: Limit) -> Schema:
    """Return what a limit says of a text or a number."""
    match limit:
        case Range(low, high):
            return {"minimum": low, "maximum": high}
        case Length(low, high):
            return ({"minLength": low} if low else {}) | ({} if high is None else {"maxLength": high})
        case OneOf(values) | OneNumberOf(values):
            return {"enum": list(values)}
        case Matches(pattern, _, _):
            return {"pattern": f"^(?:{pattern.pattern})$"}
        case _:
            return {}


def of_list(limit: Limit) -> Schema:
    """Return what a limit says of a list."""
    match limit:
        case Length(low, high):
            return ({"minItems": low} if low else {}) | ({} if high is None else {"maxItems": high})
        case _:
            return {}


@cache
def descriptions(kind: type) -> Mapping[str, str]:
    """Return what is written below the fields of a kind, and of the kind that it extends."""
    found: dict[str, str] = {}
    for each in reversed([each for each in kind.__mro__ if is_dataclass(each)]):
        (body,) = ast.parse(inspect.getsource(each)).body
        for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as words)):
                    found[name] = flat(words)
                case _:
                    pass
    return {each.name: found[each.name] for each in fields(kind) if each.name in found}


def flat(text: str) -> str:
    """Return a docstring on one line, as Markdown."""
    return " ".join(text.split()).replace("``", "`")


def text_of_schema() -> str:
    """Return the file."""
    return json.dumps(schema_of_kinds(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text_of_schema(), encoding="utf-8")
    sys.stdout.write(f"{FILE}\n")
