"""`authplane crds`: structural schemas that refuse what the reader refuses."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import jsonschema
import pytest
import re2  # type: ignore[import-untyped]
import yaml
from click.testing import CliRunner
from tests.support.kubernetes.api_objects import documents as parsed
from tests.support.pages import PAGES, ROOT, blocks, name_of
from tests.support.resources.broken_documents import Broken, broken_documents
from tools.gen_crds.cluster_kinds import CLUSTER_KINDS
from tools.gen_crds.definitions import FILE, definitions, text_of_definitions
from tools.gen_schemas import collect

from authplane.cli.main import build_app
from authplane.resources.catalogue import KINDS
from authplane.resources.decode_document import Decoded, parse_document
from authplane.resources.pruned_fields import pruned_fields
from authplane.resources.typed.shapes import shape_of
from authplane.resources.yaml.nodes import parse_nodes, plain

DEFINITIONS: Final = definitions()
MADE: Final = {**KINDS, **CLUSTER_KINDS}
BUILT_IN: Final = ("v1", "discovery.k8s.io/v1")
VALIDATIONS: Final = {"not", "oneOf", "anyOf", "allOf", "required", "properties", "enum", "minLength", "maxLength"}


def crds(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(build_app(), ["crds", *arguments])
    return done.exit_code, done.output


@cache
def schemas() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the schema of every document, by API version and kind."""
    return {
        (f"{each['spec']['group']}/{version['name']}", each["spec"]["names"]["kind"]): version
        for each in DEFINITIONS
        for version in each["spec"]["versions"]
    }


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the schema of every field."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from nodes(schema[name], f"{path}[]")


def everywhere() -> Iterator[tuple[str, dict[str, Any]]]:
    for (version, kind), each in schemas().items():
        yield from nodes(each["schema"]["openAPIV3Schema"], f"{kind} of {version} ")


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that refuses fields which an API server would drop."""
    made = dict(schema)
    if "properties" in made:
        made["properties"] = {name: strict(each) for name, each in made["properties"].items()}
        if not made.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
    for name in ("items", "additionalProperties"):
        if isinstance(made.get(name), dict):
            made[name] = strict(made[name])
    rules = [each["rule"] for each in made.get("x-kubernetes-validations", ())]
    refused = [rule.removeprefix("!has(self.").removesuffix(")") for rule in rules if rule.startswith("!has(self.")]
    if refused and "not" not in made:
        made["not"] = {"anyOf": [{"required": [name]} for name in refused if name.isalnum()]}
    return made


# --- The command


def test_the_file_in_the_package_is_made_from_the_kinds() -> None:
    assert (ROOT / FILE).read_text(encoding="utf-8") == text_of_definitions(), "run: python -m tools.gen_crds"


@pytest.mark.slow
def test_the_command_prints_our_own_kinds_and_all_on_demand() -> None:
    status, text = crds()
    own = list(parsed(text))
    assert status == 0
    assert [each["metadata"]["name"] for each in own] == [
        "authorizationservices.authplane.dev",
        "authplaneconfigurations.authplane.dev",
    ]
    assert list(parsed(crds("--all")[1])) == DEFINITIONS
    assert own == DEFINITIONS[:2]


def test_json_is_one_list_that_kubectl_applies() -> None:
    status, text = crds("--all", "-o", "json")
    assert status == 0
    assert json.loads(text) == {"apiVersion": "v1", "kind": "List", "items": DEFINITIONS}


def test_every_kind_that_is_read_has_a_definition() -> None:
    wanted = {(version, kind) for version, kind in KINDS if version not in BUILT_IN}
    # An API server would show it as v1alpha1, where a rule without authorization grants everything.
    assert wanted - set(schemas()) == {("agentic.networking.x-k8s.io/v0alpha0", "XAccessPolicy")}
    for each in DEFINITIONS:
        assert [version["storage"] for version in each["spec"]["versions"]].count(True) == 1
        assert each["spec"]["names"]["categories"] == ["authplane"]


# --- What an API server requires of schemas


def test_every_field_has_one_type_or_keeps_what_it_contains() -> None:
    assert [
        path
        for path, each in everywhere()
        if not isinstance(each.get("type"), str) and not each.get("x-kubernetes-preserve-unknown-fields")
    ] == []
    forbidden = {"$ref", "definitions", "if", "then", "else", "uniqueItems", "const"}
    assert [path for path, each in everywhere() if forbidden & set(each)] == []
    assert [path for path, each in everywhere() if {"properties", "additionalProperties"} <= set(each)] == []
    for path, each in everywhere():
        for name in ("oneOf", "anyOf", "allOf"):
            assert all(set(part) <= VALIDATIONS for part in each.get(name, ())), path
        assert set(each.get("not", {})) <= VALIDATIONS, path


def test_patterns_and_defaults_are_valid() -> None:
    for path, each in everywhere():
        if "pattern" in each:
            re2.compile(each["pattern"])  # the API server has Go's expressions, which are RE2
        if "default" in each:
            assert jsonschema.Draft7Validator(each).is_valid(each["default"]), path


def test_no_field_that_we_read_is_dropped() -> None:
    for name, version in schemas().items():
        assert pruned_fields(MADE[name], version["schema"]["openAPIV3Schema"]) == (), name


def test_what_is_kept_without_a_schema_is_kept_on_purpose() -> None:
    """Only fields that the reader accepts whatever they contain."""
    unmodelled = {
        name
        for made in _all_kinds()
        for name in (
            *shape_of(made).upstream.silent,
            *shape_of(made).upstream.ignored,
            *shape_of(made).upstream.refused,
        )
    }
    given = {
        "cors", "extensionRef", "externalAuth", "filters", "global", "loadBalancer", "requestHeaderModifier",
        "requestMirror", "requestRedirect", "responseHeaderModifier",
    }  # fmt: skip
    kept = {
        path.removesuffix("[]").rpartition(".")[2]
        for path, each in everywhere()
        if each.get("x-kubernetes-preserve-unknown-fields")
    }
    assert kept <= unmodelled | given


def _all_kinds() -> Iterator[type]:
    found: dict[str, type] = {}
    for made in MADE.values():
        collect(made, found)
    return iter(found.values())


# --- Documents


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    folders = (ROOT / "examples", ROOT / "src" / "authplane" / "devkit")
    for path in sorted(path for folder in folders for path in folder.rglob("*.yaml")):
        if not path.name.endswith((".test.yaml", ".request.yaml")):
            for number, text in enumerate(path.read_text(encoding="utf-8").split("\n---\n")):
                root = parse_nodes(text).root
                yield f"{path.relative_to(ROOT)}#{number}", plain(root) if root is not None else {}


def judged(document: Any) -> jsonschema.Draft7Validator | None:
    """Return the judge of a document; None for kinds of Kubernetes."""
    named = isinstance(document, dict) and {"apiVersion", "kind"} <= set(document)
    return _judge(document["apiVersion"], document["kind"]) if named else None


@cache
def _judge(version: str, kind: str) -> jsonschema.Draft7Validator | None:
    found = schemas().get((version, kind))
    if found is None:
        return None
    schema = strict(found["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft7Validator(schema)


@pytest.mark.slow
def test_every_example_is_in_the_form_that_a_cluster_accepts() -> None:
    wrong, count = [], 0
    for place, document in documents():
        judge = judged(document)
        if judge is not None:
            count += 1
            wrong += [f"{place}: {each.json_path}: {each.message}" for each in judge.iter_errors(document)]
    assert wrong == []
    assert count > 20


@pytest.mark.slow
def test_every_document_of_the_pages_is_in_the_form_that_a_cluster_accepts() -> None:
    wrong, count = [], 0
    for page in PAGES:
        for block in blocks(page):
            for document in yaml.safe_load_all(block.text) if block.language == "yaml" else ():
                judge = judged(document)
                # Upstream's own definition of it has an object where ours has a list; authplane reads both.
                if judge is not None and document["kind"] != "XAccessPolicy":
                    count += 1
                    wrong += [f"{name_of(page)}: {each.json_path}" for each in judge.iter_errors(document)]
    assert wrong == []
    assert count > 30


@pytest.mark.slow
def test_every_status_that_the_control_plane_reports_is_kept() -> None:
    count = 0
    for path in sorted((ROOT / "tests" / "golden").rglob("status.yaml")):
        for record in yaml.safe_load(path.read_text(encoding="utf-8")) or ():
            judge = judged(record)
            if judge is not None and "status" in record:
                count += 1
                errors = judge.descend(record["status"], judge.schema["properties"]["status"])
                assert [each.message for each in errors] == [], path
    assert count > 100


def broken() -> Iterator[Broken]:
    for (version, kind), made in KINDS.items():
        if (version, kind) in schemas():
            yield from broken_documents(version, kind, made)


@pytest.mark.slow
def test_what_the_reader_refuses_in_one_field_the_schema_refuses_in_the_same_field() -> None:
    silent, count = [], 0
    for each in broken():
        count += 1
        assert each.path in _refused_paths(each), (each, "the reader accepts it")
        judge = judged(each.document)
        assert judge is not None
        places = {tuple(error.absolute_path) for error in judge.iter_errors(each.document)}
        if not any(place == each.path[: len(place)] for place in places):
            silent.append((each.document["kind"], each.path, each.how))
    assert silent == []
    assert count > 1000


def _refused_paths(found: Broken) -> set[tuple[str | int, ...]]:
    root = parse_nodes(json.dumps(found.document)).root
    assert root is not None
    decoded = parse_document(root)
    assert isinstance(decoded, Decoded)
    return {problem.path for problem in decoded.problems}
