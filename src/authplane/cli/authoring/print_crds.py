"""`authplane crds`."""

import json
from enum import StrEnum
from importlib.resources import files
from typing import Annotated, Any, Final

import click

from authplane.cli.shared.parameters import Option

_OWN_GROUP: Final = "authplane.dev"


class Format(StrEnum):
    """The output format of the definitions."""

    YAML = "yaml"
    JSON = "json"


def print_crds(
    every: Annotated[
        bool,
        Option(
            "--all",
            help="Print the kinds of Contour, of the Gateway API and of agentic networking too, with the fields that "
            "authplane reads. Use it only for clusters that do not have these kinds.",
        ),
    ] = False,
    output: Annotated[Format, Option("-o", "--output", help="Output format: yaml or json.")] = Format.YAML,
) -> None:
    """Print the CustomResourceDefinitions of the kinds, for a cluster.

    The definitions come from the code that reads resources from files, so that a cluster and a folder accept the same
    fields. A cluster accepts only the object form of a field: `cel: {expression: ...}` instead of a string, and lists
    instead of a single item. authplane uses the definitions of Contour and of the Gateway API that a cluster has.

    Example: authplane crds | kubectl apply --server-side -f -
    """
    text = files("authplane.resources").joinpath("schemas/crds.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = [each for each in json.loads(text) if every or each["spec"]["group"] == _OWN_GROUP]
    click.echo(_yaml(found) if output is Format.YAML else _json(found), nl=False)


def _yaml(definitions: list[dict[str, Any]]) -> str:
    import yaml  # noqa: PLC0415 (JSON does not need it)

    # The dumper in C takes a tenth of the time; some installations of PyYAML do not have it.
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump_all(
        definitions, Dumper=dumper, sort_keys=False, allow_unicode=True, explicit_start=True, width=120
    )


def _json(definitions: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions}, indent=2, ensure_ascii=False) + "\n"
