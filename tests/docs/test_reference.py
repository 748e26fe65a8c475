"""The reference pages say everything that the code knows: each command, reason, metric, and field of each kind."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.pages import blocks, name_of, read
from tools.gen_docs.command_tables import commands
from tools.gen_docs.field_tables import TREATMENTS, kinds_by_title, title_of, walk
from tools.gen_docs.pages import REFERENCE, regenerated, regions
from tools.gen_docs.reason_index import reasons
from tools.gen_docs.tables import rows

from authplane.authserver.runtime.server_document import read_document
from authplane.controlplane.graph.reports import condition_type
from authplane.resources.catalogue import KINDS
from authplane.resources.kinds.agentic import AccessPolicy
from authplane.resources.kinds.configuration import AuthplaneConfiguration
from authplane.resources.kinds.meta import Meta

CONDITIONS = read(REFERENCE / "status.md")
REASONS = "\n".join(map(read, sorted((REFERENCE / "reasons").glob("[!i]*.md"))))
OVERVIEW = read(REFERENCE / "resources" / "index.md")
RESOURCES = "\n".join(map(read, sorted((REFERENCE / "resources").glob("*.md"))))


@pytest.mark.slow
def test_the_walk_finds_reasons_in_every_form() -> None:
    assert {
        "DuplicateVhost",  # problems.add
        "IgnoredField",  # problems.warn
        "FieldUnknown",  # report.error
        "KindUnknown",  # Problem(...)
        "YamlInvalid",  # a constant
        "DuplicateName",  # a pair
        "ExtensionServiceNotValid",  # a returned pair
        "ErrorPresent",  # reason=
        "Rejected",  # a condition
        "DeniedByDefault",  # a condition of what policies protect
        "PolicyStatusFull",  # one of two
        "AudiencesMissing",  # an error or a warning
    } <= reasons()


@pytest.mark.slow
def test_the_pages_list_every_reason_and_no_other() -> None:
    named = {cells[3].strip("`") for cells in rows(CONDITIONS) if cells[3].startswith("`")}
    named |= {cells[0].strip("`") for cells in rows(REASONS) if cells[0].startswith("`")}
    assert named == reasons()


def test_the_pages_give_each_reason_its_type() -> None:
    wrong = [
        cells
        for cells in rows(REASONS)
        if len(cells) == 3
        and re.fullmatch(r"`\w+`", cells[1])
        and condition_type(cells[0].strip("`")) != cells[1].strip("`")
    ]
    assert wrong == []


class Described(NamedTuple):
    """What the page says of a field: how it is treated and, if it is supported, which values it takes."""

    treatment: str
    value: str = ""


def documented(section: str) -> dict[str, Described]:
    """Read the fields of a section.

    Rows are supported, items of the list say how others are treated, or that they are those of another field.
    """
    [text] = re.findall(rf"^##? {section}\n(.*?)(?=^##? |\Z)", RESOURCES, re.MULTILINE | re.DOTALL)
    found = {cells[0].strip("`"): Described("supported", cells[1]) for cells in rows(text) if cells[0] != "field"}
    treatments = {words: treatment for treatment, words in TREATMENTS.items()}
    items = re.findall(r"^- ([a-z ]+) (?:in `([^`]+)`|at the top level):((?:.|\n  )+)", text, re.MULTILINE)
    for words, where, names in items:
        prefix = f"{where}." if where else ""
        found |= {f"{prefix}{name}": Described(treatments[words]) for name in re.findall(r"`([\w-]+)`", names)}
    for here, there, other in re.findall(
        r"^- `([^`]+)`\s+has\s+the\s+same\s+fields\s+as\s+`([^`]+)`\s+in\s+(?:this\s+kind|\[([^\]]+)\])",
        text,
        re.MULTILINE,
    ):
        known = documented(other) if other else found
        found |= {here + path.removeprefix(there): each for path, each in known.items() if _is_below(path, there)}
    return found


def _is_below(path: str, above: str) -> bool:
    return path.startswith((f"{above}.", f"{above}["))


@pytest.mark.parametrize("kind", dict.fromkeys(KINDS.values()), ids=lambda kind: kind.__name__)
def test_the_resources_page_has_every_field_of_a_kind_and_no_other(kind: type) -> None:
    described = {path: each.treatment for path, each in documented(title_of(kind)).items()}
    assert described == {field.path: field.treatment for field in walk(kind)}


def test_the_types_of_fields_say_which_values_they_take() -> None:
    types = {known.path: known.type for known in walk(AccessPolicy)}
    assert types["spec.targetRefs"] == "list of at most 10 items, required"
    assert types["spec.mode"] == "`Enforce` (default) or `Shadow`"
    assert {path: words for path, words in types.items() if re.search(" or (list|text)$", words)} == {
        "spec.rules[].authorization": "object or list",
        "spec.rules[].authorization[].cel": "object or text",
        "spec.rules[].authorization[].paths": "list or text",
        "spec.rules[].source.serviceAccount": "object or text",
        "spec.rules[].source.spiffe": "text, at most 2048 characters or list",
    }
    ports = {known.path: known.type for known in walk(AuthplaneConfiguration)}
    assert ports["spec.listeners.http.port"] == "1 to 65535; default 8080"
    assert ports["spec.strict"] == "true or false; default false"


def test_the_resources_page_has_the_fields_that_every_kind_has() -> None:
    described = {path: each.treatment for path, each in documented("metadata").items()}
    assert described == {field.path: field.treatment for field in walk(Meta, "metadata.")}


def test_the_resources_page_lists_the_kinds() -> None:
    overview = OVERVIEW.split("## How fields are treated")[0]
    listed = {
        (version, re.sub(r"\[(\w+)\].*", r"\1", cells[0]))
        for cells in rows(overview)[1:]
        for version in re.findall(r"`([^`]+)`", cells[1])
    }
    assert listed == set(KINDS)


COMMANDS = commands()
"""Read while tests are collected: importing Python inside Envoy starts a program, once."""
GENERATED = [page for page in sorted(REFERENCE.rglob("*.md")) if regions(read(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", GENERATED, ids=name_of)
def test_a_page_says_what_the_code_says_now(page: Path) -> None:
    assert read(page) == regenerated(read(page)), "run: make docs"


def test_every_command_kind_and_program_has_its_place_on_a_page() -> None:
    assert {"authserver policy", "authserver serve", "dev issuer", "dev spiffe", "dev token"} <= COMMANDS.keys()
    found = [each for page in GENERATED for each in regions(read(page))]
    assert sorted(found) == sorted(
        [
            *(f"command {name}" for name in COMMANDS),
            *(f"fields of {title}" for title in kinds_by_title()),
            *("metrics of the authorization service", "metrics of the control plane"),
            *("commands", "kinds", "reasons", "shared options"),
        ]
    )


def test_what_people_wrote_is_kept_and_what_the_code_says_is_not() -> None:
    stale = """# XBackend

<!-- generated: fields of XBackend -->

| field | type | effect |
|---|---|---|
| `spec` | wrong | what we say of it |
| `gone` | text | what was said of it |

- `spec` has the same fields as `spec` in [Backend](backend.md).

<!-- end -->

The end.
"""
    assert regenerated(stale) == stale.replace("wrong", "object, required").replace(
        "| `gone` | text | what was said of it |\n", ""
    )


def test_a_metric_that_a_page_does_not_have_is_added_with_the_words_of_the_program() -> None:
    empty = "<!-- generated: metrics of the authorization service -->\n<!-- end -->"
    added = "| `authplane_log_lines_lost_total` | counter | | Lines lost from the decision log. |"
    assert added in regenerated(empty)


def test_the_page_of_the_command_line_shows_a_document_that_can_be_served(tmp_path: Path) -> None:
    [block] = [block for block in blocks(REFERENCE / "cli" / "authserver.md") if block.language == "yaml"]
    file = tmp_path / "authserver.yaml"
    file.write_text(block.text, encoding="utf-8")
    assert [branch.name for branch in read_document(file).branches] == ["staff", "demo"]
