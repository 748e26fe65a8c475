"""Structural schemas, as CustomResourceDefinitions need them: one type for each field, and no references.

A structural schema cannot say "an object or a text", so only the object form and the list form of a field are in it.
"""

import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from tools.gen_crds.validation_rules import LISTS, REFUSED_TYPES, RULES, WITHOUT_CEL, Rule
from tools.gen_schemas import NO_EFFECT, NOT_ENFORCED, descriptions, flat, of_list, of_value

from authplane.core.secret import Secret
from authplane.resources.typed.schema import Given, Limit, Range, Unused
from authplane.resources.typed.shapes import Shape, shape_of

Schema: TypeAlias = dict[str, Any]

_ANYTHING: Final[Mapping[str, Any]] = types.MappingProxyType({"x-kubernetes-preserve-unknown-fields": True})
"""A field that the reader accepts whatever it contains."""
_LARGEST: Final = 2**63 - 1


def schema_of_kind(kind: type) -> Schema:
    """Return the schema of a document, without its status."""
    made = dict(_object(kind))
    around = {
        "apiVersion": {"type": "string", "description": "API version of the document."},
        "kind": {"type": "string", "description": "Kind of the document."},
        "metadata": {"type": "object"},
    }
    made["properties"] = around | {name: each for name, each in made["properties"].items() if name != "metadata"}
    return made


@cache
def _object(kind: type) -> Schema:
    """Return the schema of an object; nobody changes it, since many fields have the same kind."""
    shape = shape_of(kind)
    hints = get_type_hints(kind, include_extras=True)
    said = descriptions(kind)
    defaults = {each.name: each.default for each in fields(kind)}
    properties: dict[str, Schema] = {}
    for name, (attribute, _) in shape.readers.items():
        written = _schema(hints[attribute])
        if attribute in said:
            written = written | {"description": said[attribute]}
        if name in shape.unused:
            written = written | {"description": f"{written.get('description', '')} {NO_EFFECT}".strip()}
        default = defaults[attribute]
        if isinstance(default, str | int) and default:
            written = written | {"default": default}
        if (kind, name) in LISTS:
            keys = list(LISTS[kind, name])
            written = written | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        properties[name] = written
    properties |= dict(_unmodelled(shape))
    made: Schema = {"description": flat(inspect.getdoc(kind) or ""), "type": "object", "properties": properties}
    if shape.required:
        made["required"] = list(shape.required)
    made |= WITHOUT_CEL.get(kind, {})
    rules = [*(_refusal(name) for name in shape.upstream.refused), *RULES.get(kind, ())]
    if rules:
        made["x-kubernetes-validations"] = [_written(each) for each in rules]
    return made


def _unmodelled(shape: Shape) -> Iterator[tuple[str, Schema]]:
    """Keep the fields of the upstream kind that the reader does not use: an API server would drop them silently."""
    for name in shape.upstream.silent:
        yield name, dict(_ANYTHING)
    for name in shape.upstream.ignored:
        yield name, {"description": NO_EFFECT, **_ANYTHING}
    for name in shape.upstream.refused:
        yield name, {"description": NOT_ENFORCED, **REFUSED_TYPES[name]}


def _refusal(name: str) -> Rule:
    return Rule(
        f"!has(self.{name})",
        f"{name!r} restricts access, but authplane does not enforce it. Remove it to use this resource.",
        f".{name}",
    )


def _written(rule: Rule) -> Schema:
    place = {"fieldPath": rule.field_path} if rule.field_path else {}
    return {"rule": rule.rule, "message": rule.message, **place}


def _schema(hint: object, limits: tuple[Limit, ...] = ()) -> Schema:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _schema(arguments[0], (*limits, *arguments[1:]))
    if origin is Union or origin is types.UnionType:
        (inner,) = (each for each in arguments if each is not type(None))
        return _schema(inner, limits)
    if origin is tuple:
        bounds = {key: each for limit in limits for key, each in of_list(limit).items()}
        return {"type": "array", "items": _schema(arguments[0])} | bounds
    if origin is Mapping:
        secret = get_origin(arguments[1]) is Secret
        return {"type": "object", "additionalProperties": {"type": "string"} if secret else _schema(arguments[1])}
    return _plain(hint, limits)


def _plain(hint: object, limits: tuple[Limit, ...]) -> Schema:
    if hint is bool:
        return dict(_ANYTHING) if Given() in limits else {"type": "boolean"}
    if isinstance(hint, type) and is_dataclass(hint):
        return _object(hint)
    made: Schema = {str: {"type": "string"}, int: {"type": "integer", "format": "int64"}}[hint]  # type: ignore[index]
    made = dict(made) | ({"description": NO_EFFECT} if Unused() in limits else {})
    for limit in limits:
        made |= _within(of_value(limit)) if isinstance(limit, Range) else of_value(limit)
    return made


def _within(bounds: Schema) -> Schema:
    """Leave out a bound that the type has anyway: an API server reads bounds as floating-point numbers."""
    return {name: each for name, each in bounds.items() if each != _LARGEST}
