"""The one form of YAML: what `authplane fmt` makes of a text.

- Each level is indented by two spaces; the items of a list are in the column of its key.
- A resource begins with apiVersion, kind, metadata and spec, in this order; other keys stay in theirs.
- Lines have no spaces at their end, and at most one blank line follows another.
- Comments, quotes, brackets and long texts stay as they are, moved as far as what they belong to.

A document whose form cannot be changed without a doubt about its meaning stays as it is.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

from authplane.core.values import dataclass
from authplane.devkit.formatting.yaml_layout import (
    Fold,
    Layout,
    NotMovableError,
    Span,
    Start,
    levels_around,
    read_layout,
)
from authplane.resources.yaml.nodes import Fields, Items, Node, Scalar, parse_nodes

_FIRST: Final = ("apiVersion", "kind", "metadata", "spec")
_MARK: Final = re.compile(r"(?:---|\.\.\.)(?=[ \t]|\Z)")
_BARE_MARK: Final = re.compile(r"(?:---|\.\.\.)[ \t]*(?:#.*)?")


@dataclass(frozen=True, slots=True)
class Formatted:
    """A text in its one form."""

    text: str
    kept: tuple[int, ...] = ()
    """Lines at which documents begin that stay as they are, from 1."""


class _Line(NamedTuple):
    """A line as it is written."""

    text: str
    is_content: bool = False
    """It belongs to a text in which blank lines count."""
    name: str = ""
    """The key of the document that begins here."""

    @property
    def is_blank(self) -> bool:
        return not self.is_content and not self.text

    @property
    def is_comment(self) -> bool:
        return not self.is_content and self.text.startswith("#")


def format_text(text: str) -> Formatted:
    """Return the text of a file in its one form. Its documents can be read: `parse_nodes` has no problem with them."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if not text.endswith("\n"):
        # The end of the text may belong to a value: a line break after it must not change that.
        closed = f"{text}\n"
        return format_text(closed) if _means_the_same(text, closed) else Formatted(text, (1,))
    written: list[str] = []
    kept: list[int] = []
    number, mark = 1, ""
    for is_mark, group in groupby(text.removesuffix("\n").split("\n"), key=lambda line: bool(_MARK.match(line))):
        lines = list(group)
        if is_mark:
            written += [line.rstrip(" \t") for line in lines]
        else:
            formatted = _format_document(lines, mark)
            if formatted is None:
                kept.append(number)
            written += lines if formatted is None else formatted
        number, mark = number + len(lines), written[-1] if written else ""
    return Formatted("\n".join(written) + "\n" if any(written) else "", tuple(kept))


def _format_document(lines: list[str], mark: str) -> list[str] | None:
    """Return the lines of a document in its one form; None if they have to stay as they are."""
    text = "\n".join(lines) + "\n"
    if (mark and not _BARE_MARK.fullmatch(mark)) or "\r" in text or any(line.startswith("%") for line in lines):
        return None
    try:
        layout = read_layout(text, lines)
        moved = list(_move(lines, layout))
    except NotMovableError:
        return None
    written = [line.text for line in _without_blanks(_in_order(moved))]
    return written if _means_the_same(text, "\n".join([*written, ""])) else None


# --- Columns


def _move(lines: list[str], layout: Layout) -> Iterator[_Line]:
    """Put every line into its column."""
    within = {line: span for span in layout.spans for line in range(span.first + 1, span.last + 1)}
    continued = {line for span in layout.spans for line in range(span.first, span.last)}
    moved_by: dict[int, int] = {}
    for number, line in enumerate(lines):
        if number in within:
            text = _moved_inside(line, within[number], moved_by.get(within[number].first, 0))
            is_content = True
        else:
            text, is_content = _moved(line, number, layout), False
            moved_by[number] = _indent(text) - _indent(line)
        # Behind a backslash a space at the end of a line counts.
        tail = text if number in continued or is_content else text.rstrip(" \t")
        names = [start.name for start in layout.starts.get(number, ()) if start.name]
        yield _Line(tail, is_content, names[0] if names else "")


def _moved_inside(line: str, span: Span, moved_by: int) -> str:
    """Move a line of a long value."""
    match span.fold:
        case Fold.BLOCK:
            rest = line[span.source :]
            return " " * span.target + rest if rest else ""
        case Fold.TEXT:
            rest = line.lstrip(" \t")
            return " " * span.target + rest if rest else ""
        case Fold.FLOW:
            rest = line.lstrip(" ")
            return " " * max(0, _indent(line) + moved_by) + rest if rest else ""


def _moved(line: str, number: int, layout: Layout) -> str:
    stripped = line.strip(" \t")
    if number in layout.starts:
        return _with_dashes(_without_gap(line, number, layout), layout.starts[number])
    if number in layout.values:
        return " " * layout.values[number] + line.lstrip(" \t")
    if not stripped:
        return ""
    if stripped.startswith("#"):
        return " " * _comment_column(line, number, layout) + stripped
    raise NotMovableError


def _without_gap(line: str, number: int, layout: Layout) -> str:
    begin, end = layout.gaps.get(number, (0, 0))
    return f"{line[:begin]} {line[end:]}" if begin < end and not line[begin:end].strip(" \t") else line


def _with_dashes(line: str, starts: list[Start]) -> str:
    """Write the dashes of a line, one space after each, and what follows them."""
    first, last = starts[0], starts[-1]
    if line[: first.column].strip(" \t") or any(not start.is_dash for start in starts[:-1]):
        raise NotMovableError
    dashes = sum(start.is_dash for start in starts)
    between = line[first.column : last.column].replace("-", "").strip(" \t")
    if between or last.target != first.target + 2 * (len(starts) - 1):
        raise NotMovableError
    rest = line[last.column + 1 :].lstrip(" \t") if last.is_dash else line[last.column :]
    return " " * first.target + "- " * dashes + rest


def _comment_column(line: str, number: int, layout: Layout) -> int:
    """Return the column of what a comment is about: the innermost list or mapping that is not right of it."""
    column = _indent(line)
    around = [level for level in levels_around(layout, number) if level.source <= column]
    return max(around).target if around else 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


# --- Order


def _in_order(lines: list[_Line]) -> list[_Line]:
    """Put the first keys of a resource first, each with the comments above it."""
    places = [number for number, line in enumerate(lines) if line.name]
    names = [lines[number].name for number in places]
    if not {"apiVersion", "kind"} <= set(names):
        return lines
    begins = [_with_comments(lines, number) for number in places]
    # What is above the first key is about the whole document.
    head, begins[0] = lines[: places[0]], places[0]
    ends = [*begins[1:], len(lines)]
    entries = [(name, lines[begin:end]) for name, begin, end in zip(names, begins, ends, strict=True)]
    ranks = {name: rank for rank, name in enumerate(_FIRST)}
    ordered = sorted(entries, key=lambda entry: ranks.get(entry[0], len(_FIRST)))
    return [*head, *(line for _, own in ordered for line in own)]


def _with_comments(lines: list[_Line], number: int) -> int:
    """Return the first of the comments that are right above a line, in the column of the document's keys."""
    while number and lines[number - 1].is_comment:
        number -= 1
    return number


def _without_blanks(lines: Iterable[_Line]) -> list[_Line]:
    """Leave out blank lines at the beginning and the end, and all but one of several."""
    kept: list[_Line] = []
    for line in lines:
        if not line.is_blank or (kept and not kept[-1].is_blank):
            kept.append(line)
    while kept and kept[-1].is_blank:
        kept.pop()
    return kept


# --- Meaning


def _means_the_same(before: str, after: str) -> bool:
    """Tell whether two texts have the same values and, but for spaces, the same lines."""
    one, other = parse_nodes(before), parse_nodes(after)
    problems = [[spot.problem for spot in parsed.spots] for parsed in (one, other)]
    return problems[0] == problems[1] and _value(one.root) == _value(other.root) and _marks(before) == _marks(after)


def _value(node: Node | None) -> Any:
    match node:
        case None:
            return None
        case Fields(entries=entries):
            return {name: _value(entry.node) for name, entry in entries.items()}
        case Items(items=items):
            return [_value(item) for item in items]
        case Scalar(text=text, plain=plain):
            return text, plain


def _marks(text: str) -> Counter[str]:
    """Count the lines without their spaces, so that no comment can be lost."""
    lines = ("".join(line.split()) for line in text.splitlines())
    return Counter(line for line in lines if line)
