"""`authplane schema`."""

import json
from importlib.resources import files
from typing import Annotated, Any

import click

from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Argument


def print_schema(
    kind: Annotated[
        str, Argument(metavar="[KIND]", help="Kind to describe, such as AccessPolicy. Default: all kinds.")
    ] = "",
) -> None:
    """Print the JSON Schema of the resources, for editors and for CI.

    Save the schema beside your resources. Editors with YAML support use it for a file that begins with the comment
    `# yaml-language-server: $schema=authplane.schema.json`; the path is relative to that file.

    Example: authplane schema > authplane.schema.json
    """
    text = files("authplane.resources").joinpath("schemas/authplane.schema.json").read_text(encoding="utf-8")
    if kind:
        text = json.dumps(_only(json.loads(text), kind), indent=1, ensure_ascii=False) + "\n"
    click.echo(text, nl=False)


def _only(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the part of the schema that describes one kind."""
    choices = [each for each in schema["allOf"] if each["if"]["properties"]["kind"]["const"] == kind]
    if not choices:
        known = sorted({each["if"]["properties"]["kind"]["const"] for each in schema["allOf"]})
        fail(f"Unknown kind {kind!r}. Supported: {', '.join(known)}.")
    needed: set[str] = set()
    pending = [each["then"]["$ref"] for each in choices]
    while pending:
        name = pending.pop().rpartition("/")[2]
        if name not in needed:
            needed.add(name)
            pending += _references(schema["definitions"][name])
    versions = sorted({each["if"]["properties"]["apiVersion"]["const"] for each in choices})
    properties = {"apiVersion": {"enum": versions}, "kind": {"const": kind}}
    definitions = {name: each for name, each in schema["definitions"].items() if name in needed}
    return schema | {"title": kind, "properties": properties, "allOf": choices, "definitions": definitions}


def _references(value: object) -> list[str]:
    match value:
        case {"$ref": str() as reference}:
            return [reference]
        case dict():
            return [found for each in value.values() for found in _references(each)]
        case list():
            return [found for each in value for found in _references(each)]
        case _:
            return []
