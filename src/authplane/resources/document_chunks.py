"""A file's text split into documents, and the content of each.

A line that begins with ``---`` or ``...`` cannot be part of a value, so a file is split there before it is parsed: an
error affects one document, and an unchanged document is not read again, wherever in the file it moved.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from authplane.core.names import Ref
from authplane.core.problems import Path, Problem, Severity
from authplane.core.values import dataclass
from authplane.resources.catalogue import Resource
from authplane.resources.decode_document import Decoded, Foreign, parse_document
from authplane.resources.documents import StoredAncestor
from authplane.resources.yaml.locate import locate
from authplane.resources.yaml.nodes import Fields, Items, Node, Parsed, Scalar, Spot, is_null, parse_nodes, value_of


@dataclass(frozen=True, slots=True, eq=False)
class Doc:
    """A resource that a chunk declares. Lines of its problems count from the start of the chunk."""

    ref: Ref
    resource: Resource | None
    """None if the document has an error."""
    spots: tuple[Spot, ...]
    root: Path
    """The path of the resource in the chunk: not empty inside a ``List``."""
    protects: tuple[Ref, ...] | None = None
    """The targets of a policy; None if they cannot be read, and for other kinds."""
    ancestors: tuple[StoredAncestor, ...] = ()
    """What the status of a policy says of its ancestors."""
    host: str | None = None
    """The name that an HTTPProxy with errors claims as a root; None where that cannot be read, and for other kinds."""
    ingress_class: str | None = None
    """That of an HTTPProxy with errors; None where it cannot be read, and for other kinds."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Chunk:
    """One document of a file and everything that follows from its text."""

    text: str
    docs: tuple[Doc, ...]
    spots: tuple[Spot, ...]
    """Errors that cannot be given to a resource by name."""
    ignored: tuple[str, ...]
    """The kinds of documents that do not concern us."""
    faulty: bool
    """There is a problem here or in a resource."""
    lines: bool = True
    """The text has lines that people know; an object of a cluster has none."""


def split_documents(text: str) -> Iterator[tuple[str, int]]:
    """Cut a text into documents, each with the number of lines before it; blank ones are left out."""
    start, before = 0, 0
    # Beginnings alone are found much faster, and ends are rare.
    marks = _MARK if text.startswith("...") or "\n..." in text else _BEGINNING
    for mark in marks.finditer(text):
        end = mark.end() - 3
        piece = text[start:end]
        if _has_content(piece):
            yield piece, before
        before += piece.count("\n")
        # A parser that begins at "..." finds an end without a document; at "---" it finds a beginning.
        start = end if text[end] == "-" else mark.end()
    piece = text[start:]
    if _has_content(piece):
        yield piece, before


def build_chunk(text: str) -> Chunk:
    """Parse and decode one document."""
    return chunk_of(text, parse_nodes(text))


def chunk_of(text: str, parsed: Parsed, *, lines: bool = True) -> Chunk:
    """Decode one document."""
    if parsed.root is None or is_null(parsed.root):
        return Chunk(text, (), parsed.spots, (), faulty=bool(parsed.spots), lines=lines)
    docs: list[Doc] = []
    spots: list[Spot] = []
    ignored: list[str] = []
    unclaimed = list(parsed.spots)
    for path, node in _documents(parsed.root):
        own = [spot for spot in unclaimed if spot.problem.path[: len(path)] == path] if unclaimed else []
        unclaimed = [spot for spot in unclaimed if spot not in own]
        match parse_document(node):
            case Foreign() as foreign:
                ignored.append(foreign.kind)
                spots.extend(_placed(foreign.doubts(), node))
                spots.extend(spot for spot in own if _doubts_name(spot.problem.path[len(path) :]))
            case Decoded() as decoded:
                found = [*_within(own, path), *_placed(decoded.problems, node)]
                if decoded.ref is None or any(_doubts_name(spot.problem.path[len(path) :]) for spot in own):
                    spots.extend(found)
                else:
                    resource = None if own else decoded.resource
                    protects = None if any(map(_doubts_targets, _within(own, path))) else decoded.protects
                    host, whose = (None, None) if own else (decoded.host, decoded.ingress_class)
                    doc = Doc(decoded.ref, resource, tuple(found), path, protects, decoded.ancestors, host, whose)
                    docs.append(doc)
    spots.extend(unclaimed)
    faulty = bool(spots) or any(doc.spots for doc in docs)
    return Chunk(text, tuple(docs), tuple(spots), tuple(ignored), faulty, lines)


_MARK: Final = re.compile(r"^(?:---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)
_BEGINNING: Final = re.compile(r"\n---(?=[ \t\r\n]|\Z)")
_DIRECTIVES: Final = re.compile(r"(?:[ \t\r]*(?:#[^\n]*)?\n|%[^\n]*\n)*")


def _has_content(piece: str) -> bool:
    """Tell a document from blank lines and from the directives of the next document."""
    return bool(piece) and not piece.isspace() and not ("%" in piece and _DIRECTIVES.fullmatch(piece))


def _documents(root: Node) -> Iterator[tuple[Path, Node]]:
    """Return the document, or each item of a ``List``."""
    if isinstance(root, Fields) and "items" in root.entries:
        kind, items = root.entries.get("kind"), root.entries["items"].node
        if kind and isinstance(kind.node, Scalar) and value_of(kind.node) == "List" and isinstance(items, Items):
            yield from ((("items", index), item) for index, item in enumerate(items.items))
            return
    yield (), root


def _placed(problems: Iterable[Problem], node: Node) -> Iterator[Spot]:
    return (Spot(problem, *locate(node, problem.path)) for problem in problems)


def _within(spots: Iterable[Spot], path: Path) -> Iterator[Spot]:
    """Make the paths of problems start at the resource."""
    for problem, line, column in spots:
        inner = Problem(problem.path[len(path) :], problem.reason, problem.message, problem.severity)
        yield Spot(inner, line, column)


def _doubts_name(path: Path) -> bool:
    """Tell whether a problem of the text at this path may have changed which resource the document is."""
    return path[:1] in {(), ("apiVersion",), ("kind",)} or path[:2] in {
        ("metadata",),
        ("metadata", "name"),
        ("metadata", "namespace"),
    }


def _doubts_targets(spot: Spot) -> bool:
    """Tell whether a problem of the text may have changed what a policy protects: of two values one was taken."""
    return spot.problem.path in {("spec",), ()} or spot.problem.path[:2] == ("spec", "targetRefs")


def is_error(spot: Spot) -> bool:
    """Tell whether a problem keeps its document from being used."""
    return spot.problem.severity is Severity.ERROR
