"""`authplane schema`: editors see what the readers take, and what they refuse."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeGuard

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from tests.support.pages import ROOT
from tools.gen_schemas import FILE, schema_of_kinds, text_of_schema

from authplane.cli.main import build_app
from authplane.resources.catalogue import KINDS
from authplane.resources.yaml.nodes import parse_nodes, plain
from authplane.sources.document_versions import Library

SCHEMA: Final = schema_of_kinds()
JUDGE: Final = jsonschema.Draft7Validator(SCHEMA)


def schema(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(build_app(), ["schema", *arguments])
    return done.exit_code, done.output


def test_the_file_in_the_package_is_made_from_the_kinds_and_printed() -> None:
    assert (ROOT / FILE).read_text(encoding="utf-8") == text_of_schema(), "run: python tools/gen_schemas.py"
    assert schema() == (0, text_of_schema())
    jsonschema.Draft7Validator.check_schema(SCHEMA)


def documents() -> Iterator[tuple[str, str]]:
    folders = [ROOT / "examples", ROOT / "tests" / "golden", ROOT / "src" / "authplane" / "devkit"]
    for path in sorted(path for folder in folders for path in folder.rglob("*.yaml")):
        if path.name.endswith((".test.yaml", "out.yaml", "status.yaml")):
            continue
        for number, text in enumerate(path.read_text(encoding="utf-8").split("\n---\n")):
            yield f"{path.relative_to(ROOT)}#{number}", text


def is_ours(document: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(document, dict) and (document.get("apiVersion"), document.get("kind")) in KINDS


@pytest.mark.slow
def test_whatever_is_read_without_an_error_is_valid_and_its_typos_are_not() -> None:
    judged = 0
    for place, text in documents():
        library = Library()
        library.changed("a.yaml", text.encode())
        root = parse_nodes(text).root
        document = None if root is None else plain(root)
        if not is_ours(document) or library.current().findings:
            continue
        judged += 1
        assert [each.message for each in JUDGE.iter_errors(document)] == [], place
        assert list(JUDGE.iter_errors(document | {"spek": {}})), place
    assert judged > 150


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("spec: {type: TCP}", "spec.type"),
        ("spec: {type: MCP, mcp: {serviceName: a, port: 0}}", "spec.mcp.port"),
        ("spec: {type: MCP, mcp: {serviceName: a, prot: 80}}", "spec.mcp"),
        ("spec: {type: MCP, mcp: {serviceName: a}}", "spec.mcp"),
        ("{}", ""),
    ],
)
def test_an_editor_sees_the_field_at_fault(text: str, path: str) -> None:
    head = "apiVersion: agentic.networking.x-k8s.io/v1alpha1\nkind: Backend\nmetadata: {name: a}\n"
    document = yaml.safe_load(head + text) if text != "{}" else yaml.safe_load(head)
    found = {".".join(map(str, leaf.absolute_path)) for each in JUDGE.iter_errors(document) for leaf in _leaves(each)}
    assert path in found


def _leaves(error: jsonschema.ValidationError) -> list[jsonschema.ValidationError]:
    return [leaf for each in error.context or () for leaf in _leaves(each)] or [error]


def test_one_kind_alone_has_what_it_needs_and_no_more() -> None:
    status, text = schema("AccessPolicy")
    made = json.loads(text)
    assert (status, made["title"]) == (0, "AccessPolicy")
    assert {"AccessPolicy", "TargetRef", "CelRule"} <= made["definitions"].keys()
    assert "HTTPProxy" not in made["definitions"]
    jsonschema.Draft7Validator.check_schema(made)


def test_a_kind_that_is_not_there_is_named_with_those_that_are() -> None:
    status, text = schema("AccesPolicy")
    assert status == 1
    assert "Unknown kind 'AccesPolicy'. Supported: AccessPolicy, " in text


def test_the_kinds_of_the_schema_are_those_that_are_read() -> None:
    found = {(each["if"]["properties"]["apiVersion"]["const"], each["if"]["properties"]["kind"]["const"])
             for each in SCHEMA["allOf"]}  # fmt: skip
    assert found == set(KINDS)


EXAMPLES: Final = sorted(
    path
    for path in (ROOT / "examples").rglob("*.yaml")
    if not path.name.endswith((".test.yaml", ".request.yaml", "secrets.yaml"))
)


@pytest.mark.parametrize("path", EXAMPLES, ids=[str(path.relative_to(ROOT)) for path in EXAMPLES])
def test_an_example_names_the_schema_in_the_repository(path: Path) -> None:
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    label, _, named = first.partition("=")
    assert label == "# yaml-language-server: $schema"
    assert (path.parent / named).resolve() == ROOT / FILE
