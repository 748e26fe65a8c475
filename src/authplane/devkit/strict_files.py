"""Reads input files that are not resources, as strictly as resources; every problem has a line."""

import base64
import binascii
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from authplane.core.problems import Path, Problem
from authplane.core.values import dataclass
from authplane.resources.documents import Finding, Place
from authplane.resources.typed.shapes import INVALID, Report, read_fields, shape_of
from authplane.resources.yaml.locate import locate
from authplane.resources.yaml.nodes import (
    REFUSED,
    TAGGED,
    Entry,
    Fields,
    Items,
    Node,
    Parsed,
    Scalar,
    parse_nodes,
    value_of,
)

LARGEST: Final = 16 * 2**20
"""In bytes."""

T = TypeVar("T")

_BINARY: Final = re.compile(r"!!binary(?=\s|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A file as it was read, and the one document in it."""

    file: str
    root: Node | None
    findings: tuple[Finding, ...]
    binary: frozenset[tuple[int, int]] = frozenset()
    """The places of scalars with the tag ``!!binary``."""

    def place(self, path: Path) -> Place:
        """Return the place of a path, or of its nearest parent in the file."""
        return Place(self.file, *(locate(self.root, path) if self.root is not None else (0, 0)))

    def finding(self, problem: Problem) -> Finding:
        """Add the place to a problem."""
        said = replace(problem, message=problem.words, inside=None) if problem.inside is not None else problem
        return Finding(self.place(problem.path), None, said)


def parse_text(file: str, content: bytes, *, binary: str = "") -> Text:
    """Read the one document of a file; members called ``binary`` may have the tag ``!!binary``."""
    if len(content) > LARGEST:
        return _damaged(file, "FileUnreadable", f"The file is larger than {LARGEST} bytes. Split it.")
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        return _damaged(
            file, "EncodingInvalid", f"Byte 0x{content[error.start]:02X} is not UTF-8. Save the file as UTF-8."
        )
    parsed = parse_nodes(text)
    if parsed.root is None and not parsed.spots:
        return _damaged(file, "FileEmpty", "The file is empty. Add a document.")
    tagged = _tagged(text, parsed, binary)
    findings = tuple(
        Finding(Place(file, line, column), None, problem)
        for problem, line, column in parsed.spots
        if (line, column) not in tagged or problem.message != TAGGED
    )
    return Text(file=file, root=parsed.root, findings=findings, binary=tagged)


def read_as(kind: type[T], node: Node, path: Path, report: Report) -> T | None:
    """Make a value of a dataclass from a node; None after a problem."""
    value = read_fields(shape_of(kind), node, path, report)
    return value if value is not INVALID and isinstance(value, kind) else None


def take(node: Node, *path: str) -> tuple[Node, Node | None]:
    """Remove a member that other code reads, and leave an empty text in its place."""
    if not isinstance(node, Fields) or path[0] not in node.entries:
        return node, None
    entry = node.entries[path[0]]
    if len(path) == 1:
        kept: Node = Scalar("", False, entry.node.line, entry.node.column)
        taken: Node | None = entry.node
    else:
        kept, taken = take(entry.node, *path[1:])
    return Fields({**node.entries, path[0]: Entry(kept, entry.line, entry.column)}, node.line, node.column), taken


def json_of(node: Node, path: Path, report: Report) -> Any:
    """Return a node as a JSON value; a value that JSON cannot represent is a problem."""
    match node:
        case Fields(entries=entries):
            return {name: json_of(entry.node, (*path, name), report) for name, entry in entries.items()}
        case Items(items=items):
            return [json_of(item, (*path, index), report) for index, item in enumerate(items)]
        case Scalar():
            value = value_of(node)
            if isinstance(value, float) and not math.isfinite(value):
                report.error(path, "FieldInvalid", "The value is not a JSON number. Use a finite number.")
            return value


def json_object(node: Node | None, path: Path, report: Report) -> Mapping[str, Any]:
    """Return a node as a JSON object; an empty one if there is no node, or after a problem."""
    if node is None:
        return {}
    if not isinstance(node, Fields):
        report.mismatch(path, "a mapping", node)
        return {}
    found: dict[str, Any] = json_of(node, path, report)
    return found


def bytes_of(node: Node, text: Text, path: Path, report: Report) -> bytes:
    """Return the bytes of a scalar: its text as UTF-8, or with ``!!binary`` its decoded base64."""
    if not isinstance(node, Scalar) or (node.plain and not isinstance(value_of(node), str)):
        report.mismatch(path, "a string", node)
        return b""
    if (node.line, node.column) not in text.binary:
        return node.text.encode()
    try:
        return base64.b64decode("".join(node.text.split()), validate=True)
    except (binascii.Error, ValueError):
        report.error(path, "FieldInvalid", "The value is not base64. Use base64 after !!binary.")
        return b""


def located(text: Text, problems: Iterable[Problem]) -> tuple[Finding, ...]:
    """Add places to problems, and return them with those of the text, sorted by place."""
    found = (*text.findings, *(text.finding(problem) for problem in problems))
    return tuple(sorted(found, key=lambda each: (each.place, each.problem.message)))


def _tagged(text: str, parsed: Parsed, name: str) -> frozenset[tuple[int, int]]:
    lines = text.splitlines() if name else []
    return frozenset(
        (line, column)
        for problem, line, column in parsed.spots
        if name
        and problem.reason == REFUSED
        and problem.path[-1:] == (name,)
        and _BINARY.match(lines[line - 1], column - 1)
    )


def _damaged(file: str, reason: str, message: str) -> Text:
    return Text(file=file, root=None, findings=(Finding(Place(file, 0, 0), None, Problem((), reason, message)),))
