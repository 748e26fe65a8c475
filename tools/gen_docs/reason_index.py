"""Reasons of errors, warnings and conditions, from the code that reports them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.gen_docs.tables import rows, table

from authplane.controlplane.graph.reports import CONDITION_TYPES, condition_type

_SOURCE: Final = Path(__file__).parents[2] / "src" / "authplane"
_REASON = re.compile(r"[A-Z][A-Za-z]+")
_REPORTS = {
    "Fault", "Problem", "TlsRefused", "Unresolved", "Unusable", "_add", "_fault", "_programmed", "_programmed_as",
    "_secret", "_spot", "_unless", "add", "error", "report", "warn",
}  # fmt: skip
"""Calls that take a reason as their first or second argument."""
_STATES = {"True", "False", "Unknown"}
"""What conditions are, not why."""


def _reasons_of(path: Path) -> Iterator[str]:
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
    """Return every reason that the code may give."""
    packages = (
        "authserver/backends/htpasswd", "controlplane/graph", "controlplane/status", "policy", "resources", "sources"
    )  # fmt: skip
    modules = [path for package in packages for path in (_SOURCE / package).rglob("*.py")]
    modules.append(_SOURCE / "devkit" / "password_findings.py")
    return {reason for path in modules for reason in _reasons_of(path)} - _STATES | set(CONDITION_TYPES)


def reason_index(folder: Path) -> str:
    """Return a table of all reasons that the pages of a folder explain, in the order of the alphabet."""
    pages: dict[str, list[str]] = {}
    for page in sorted(folder.glob("*.md")):
        if page.name == "index.md":
            continue
        text = page.read_text(encoding="utf-8")
        heading = text.partition("\n")[0].removeprefix("# ")
        for reason in dict.fromkeys(cells[0].strip("`") for cells in rows(text) if cells[0].startswith("`")):
            pages.setdefault(reason, []).append(f"[{heading}]({page.name})")
    states = reasons() - pages.keys()
    explained = {**pages, **{reason: ["[Status](../status.md)"] for reason in states}}
    written = [
        (f"`{each}`", f"`{condition_type(each)}`" if each in CONDITION_TYPES else "", ", ".join(explained[each]))
        for each in sorted(explained)
    ]
    return table(("reason", "type", "explained in"), written)
