"""Fields that we read and that an API server drops without a word, because the installed definition lacks them.

An object that loses a field may lose its protection: an ExtensionService without ``validation`` is not verified.
"""

import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints

from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.shapes import shape_of

Schema: TypeAlias = Mapping[str, Any]
_KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
_NAMES: Final = "x-kubernetes-group-version-kind"


def published_schema(openapi: Schema, group: str, version: str, kind: str) -> Schema | None:
    """Find the schema of a kind in what an API server publishes of a group and version (OpenAPI 3)."""
    wanted = {"group": group, "version": version, "kind": kind}
    schemas = openapi.get("components", {}).get("schemas", {})
    return next((each for each in schemas.values() if wanted in each.get(_NAMES, ())), None)


def pruned_fields(kind: type, schema: Schema) -> tuple[str, ...]:
    """Return the paths of fields that the API server drops although we read or refuse them.

    Items of lists are written ``[]``. A field that is dropped as a whole is named once.
    """
    return tuple(_of_object(kind, schema, ""))


def _of_object(kind: type, schema: Schema, path: str) -> Iterator[str]:
    shape = shape_of(kind)
    hints = get_type_hints(kind, include_extras=True)
    known = schema.get("properties", {})
    kept = bool(schema.get(_KEEPS)) or "additionalProperties" in schema
    for name, (attribute, _) in shape.readers.items():
        hint = hints[attribute]
        if _is_meta(hint):
            continue
        if name in known:
            yield from _of_value(hint, known[name], f"{path}{name}")
        elif not kept:
            yield f"{path}{name}"
    for name in shape.upstream.refused:
        if name not in known and not kept:
            yield f"{path}{name}"


def _of_value(hint: object, schema: Schema, path: str) -> Iterator[str]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from _of_value(arguments[0], schema, path)
    elif origin is Union or origin is types.UnionType:
        for each in arguments:
            yield from _of_value(each, schema, path)
    elif origin is tuple:
        # Some definitions have a single object where we read a list or its only item.
        if schema.get("type") == "array":
            schema, path = schema.get("items", {}), f"{path}[]"
        yield from _of_value(arguments[0], schema, path)
    elif isinstance(hint, type) and is_dataclass(hint) and schema.get("type") == "object":
        yield from _of_object(hint, schema, f"{path}.")


def _is_meta(hint: object) -> bool:
    return hint is Meta or (get_origin(hint) is Annotated and get_args(hint)[0] is Meta)
