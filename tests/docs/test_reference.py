"""The reference pages say everything that the code knows: each reason, each field of each kind."""

import ast
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.pages import ROOT, blocks, read

from authplane.authserver.backends.htpasswd.verified_credentials import CacheCounts
from authplane.authserver.fronts.runtime.pyvoy.fleet import Fleet
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.verdict_metrics import AccessMetrics, VerdictCounts
from authplane.authserver.runtime.server_document import read_branches
from authplane.controlplane.graph.reports import CONDITION_TYPES, condition_type
from authplane.controlplane.serving.runtime.control_counts import ControlCounts, ControlView
from authplane.controlplane.serving.runtime.control_metrics import ControlMetrics
from authplane.controlplane.status.policy_server_status import Trial, Tried
from authplane.policy.check.decision import Allow
from authplane.policy.identity.tokens.issuer import Standing
from authplane.policy.verdicts.verdict import Would
from authplane.resources.catalogue import KINDS
from authplane.resources.kinds.agentic import AccessPolicy
from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.schema import OneOrMany
from authplane.resources.typed.shapes import shape_of

SOURCE = ROOT / "src" / "authplane"
REFERENCE = ROOT / "docs" / "reference"
CONDITIONS = read(REFERENCE / "status.md")
REASONS = "\n".join(map(read, sorted((REFERENCE / "reasons").glob("*.md"))))
METRICS = read(REFERENCE / "metrics.md")
OVERVIEW = read(REFERENCE / "resources" / "index.md")
RESOURCES = "\n".join(map(read, sorted((REFERENCE / "resources").glob("*.md"))))

_REASON = re.compile(r"[A-Z][A-Za-z]+")
_REPORTS = {
    "Fault", "Problem", "TlsRefused", "Unresolved", "_add", "_fault", "_programmed", "_programmed_as", "_secret",
    "_unless", "add", "error", "report", "warn",
}  # fmt: skip
"""Calls that take a reason as their first or second argument."""
_STATES = {"True", "False", "Unknown"}
"""What conditions are, not why."""


def reasons_of(path: Path) -> Iterator[str]:
    """Return the reasons that a module may give: in calls, as ``reason=``, and as the first of a returned pair."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = dict(_constants(tree))
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments, keywords=keywords):
                written = [each for keyword in keywords if keyword.arg == "reason" for each in _branches(keyword.value)]
                written += arguments[:2] if name in _REPORTS else []
                written += arguments[2:3] if name == "_condition" else []
            case ast.Assign(targets=[ast.Name(id="reason")], value=ast.IfExp() as value):
                written = _branches(value)
            case ast.Return(value=ast.Tuple(elts=written)) | ast.Assign(value=ast.Tuple(elts=written)):
                pass
            case _:
                continue
        yield from (reason for each in written if (reason := _text(each, constants)) and _REASON.fullmatch(reason))


def _branches(node: ast.expr) -> list[ast.expr]:
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]


def _constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            value = _text(node.value, {})
            if value:
                yield node.target.id, value


def _text(node: ast.expr, constants: dict[str, str]) -> str:
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.Name(id=name):
            return constants.get(name, "")
        case _:
            return ""


def reasons() -> set[str]:
    packages = ("controlplane/graph", "controlplane/status", "policy", "resources", "sources")
    modules = [path for package in packages for path in (SOURCE / package).rglob("*.py")]
    return {reason for path in modules for reason in reasons_of(path)} - _STATES | set(CONDITION_TYPES)


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


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


class Field(NamedTuple):
    """A field that a document may have, how it is treated, and what else may stand there than its type says."""

    path: str
    treatment: str
    forms: frozenset[str] = frozenset()


def walk(kind: type, prefix: str = "") -> Iterator[Field]:
    """Return every field that a document may have."""
    shape = shape_of(kind)
    hints = get_type_hints(kind, include_extras=True)
    for name, (attribute, _) in shape.readers.items():
        if attribute == "metadata":
            continue
        path = f"{prefix}{name}"
        if name in shape.unused:
            yield Field(path, "ignored")
            continue
        inner, listed = _inner(hints[attribute])
        alone = {"or a list"} if _is_one_or_many(hints[attribute]) else set()
        short = {"or a text"} if inner is not None and shape_of(inner).shorthand else set()
        yield Field(path, "supported", frozenset(alone | short))
        if inner is not None:
            yield from walk(inner, f"{path}{'[]' if listed else ''}.")
    for treatment in ("silent", "ignored", "refused"):
        names: tuple[str, ...] = getattr(shape.upstream, treatment)
        yield from (Field(f"{prefix}{name}", treatment) for name in names)


def _inner(hint: Any) -> tuple[type | None, bool]:
    """Return the dataclass behind an annotation, and whether there is a list of it."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _inner(inside[0])
    if origin in {Union, types.UnionType}:
        return _inner(next(each for each in inside if each is not type(None)))
    if origin is tuple:
        return _inner(inside[0])[0], True
    if not isinstance(hint, type) or not is_dataclass(hint):
        return None, False
    return (hint, False) if fields(hint) or hasattr(hint, "UPSTREAM") else (None, False)


def _is_one_or_many(hint: Any) -> bool:
    origin, inside = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return any(_is_one_or_many(each) for each in inside)
    return origin is Annotated and OneOrMany() in inside


def title_of(kind: type) -> str:
    """Return the heading of a kind; two versions of one kind that differ have their own."""
    return {"XAccessPolicy": "XAccessPolicy v1alpha1", "XAccessPolicyV0": "XAccessPolicy v0alpha0"}.get(
        kind.__name__, kind.__name__
    )


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
    items = re.findall(r"^- (\w+) in (`[^`]+`|the document):((?:.|\n  )+)", text, re.MULTILINE)
    for treatment, where, names in items:
        prefix = "" if where == "the document" else f"{where.strip('`')}."
        found |= {f"{prefix}{name}": Described(treatment) for name in re.findall(r"`([\w-]+)`", names)}
    for here, there, other in re.findall(
        r"^- below `([^`]+)`: as below\s+`([^`]+)` in\s+\[([^\]]+)\]", text, re.MULTILINE
    ):
        known = found if other == section else documented(other)
        found |= {here + path.removeprefix(there): each for path, each in known.items() if _is_below(path, there)}
    return found


def _is_below(path: str, above: str) -> bool:
    return path.startswith((f"{above}.", f"{above}["))


@pytest.mark.parametrize("kind", dict.fromkeys(KINDS.values()), ids=lambda kind: kind.__name__)
def test_the_resources_page_has_every_field_of_a_kind_and_no_other(kind: type) -> None:
    described = {path: each.treatment for path, each in documented(title_of(kind)).items()}
    assert described == {field.path: field.treatment for field in walk(kind)}


@pytest.mark.parametrize("kind", dict.fromkeys(KINDS.values()), ids=lambda kind: kind.__name__)
def test_the_resources_page_says_where_one_or_a_text_may_stand_for_more(kind: type) -> None:
    described = documented(title_of(kind))
    silent = [field for field in walk(kind) for form in field.forms if form not in described[field.path].value]
    assert silent == []


def test_the_walk_finds_the_other_forms_of_a_field() -> None:
    forms = {field.path: field.forms for field in walk(AccessPolicy) if field.forms}
    assert forms == {
        "spec.rules[].authorization": {"or a list"},
        "spec.rules[].authorization[].cel": {"or a text"},
        "spec.rules[].authorization[].paths": {"or a text"},
        "spec.rules[].source.serviceAccount": {"or a text"},
        "spec.rules[].source.spiffe": {"or a list"},
    }


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


class _Followed:
    """An issuer of which everything is known."""

    counts: Mapping[tuple[str, str], int] = MappingProxyType({("https://issuer.example", "Fetched"): 1})

    def standings(self) -> tuple[Standing, ...]:
        return (Standing(issuer="https://issuer.example", ready=True, age=1.0, why=""),)


def _of_policies() -> AccessMetrics:
    counts = VerdictCounts()
    counts.failures["AccessPolicy/default/a", "no_such_key"] += 1
    counts.decided["AccessPolicy/default/a", "rule", "0:CEL", Allow] = 1
    counts.shadows["AccessPolicy/default/a", Would.DENY, "allow"] = 1
    return AccessMetrics("a", counts, _Followed(), lambda: 1)


async def test_the_page_of_metrics_has_every_metric_with_its_labels_and_no_other() -> None:
    metrics = Metrics()
    metrics.checks("a")
    metrics.cache("a", CacheCounts())
    metrics.reloads("a")
    metrics.include(_of_policies())
    fleet = Fleet(metrics)
    with fleet.member("grpc", 0, "nowhere"):
        text = (await fleet.text()).decode()
    [section] = re.findall(r"^# Health, readiness and metrics\n(.*?)(?=^## )", METRICS, re.MULTILINE | re.DOTALL)
    assert listed_metrics(section) == known_metrics(text)


def known_metrics(text: str) -> set[tuple[str, str, frozenset[str]]]:
    """Return the name, the type and the labels of each metric that a program writes."""
    return {
        (
            f"{family.name}_total" if family.type == "counter" else family.name,
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels) - {"le"},
        )
        for family in text_string_to_metric_families(text)
    }


def listed_metrics(section: str) -> set[tuple[str, str, frozenset[str]]]:
    """Return what a page says of metrics."""
    return {(cells[0].strip("`"), cells[1], frozenset(re.findall(r"\w+", cells[2]))) for cells in rows(section)[1:]}


class _Controlled:
    """A control plane that has something to say of everything."""

    counts = ControlCounts()
    view = ControlView(
        faulty_documents=0,
        last_good=0,
        waiting=0,
        rejected=0,
        releases=MappingProxyType({"1.39": 1}),
        tried=(Tried(address="unix:/policy.sock", trial=Trial.ACCEPTED),),
        issuers=_Followed(),
    )


def test_the_page_of_metrics_has_every_metric_of_the_control_plane_and_no_other() -> None:
    [section] = re.findall(r"^## Metrics of the control plane\n(.*?)(?=^## )", METRICS, re.MULTILINE | re.DOTALL)
    assert listed_metrics(section) == known_metrics(ControlMetrics(_Controlled()).text().decode())


def test_the_page_of_the_command_line_shows_a_document_that_can_be_served(tmp_path: Path) -> None:
    [block] = [block for block in blocks(REFERENCE / "cli" / "authserver.md") if block.language == "yaml"]
    file = tmp_path / "authserver.yaml"
    file.write_text(block.text, encoding="utf-8")
    assert [branch.name for branch in read_branches(file)] == ["staff", "demo"]
