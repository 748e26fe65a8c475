"""Where the lists, mappings and long values of one YAML document are, and in which column each belongs.

The tokens of the scanner have positions, and comments stay where they are: between them. So lines are moved, never
written anew.
"""

import re
from collections.abc import Iterator
from dataclasses import field
from enum import Enum
from typing import Final, NamedTuple

import yaml

from authplane.core.values import dataclass

STEP: Final = 2
"""Spaces for each level."""
_DIGIT: Final = re.compile(r"[1-9]")


class NotMovableError(Exception):
    """The document uses a notation that cannot be moved line by line."""


class Level(NamedTuple):
    """A list or mapping in block style: the column in which it is, and the one in which it belongs."""

    source: int
    target: int


class Start(NamedTuple):
    """A key or the dash of an item, at the beginning of a line or after dashes."""

    column: int
    target: int
    is_dash: bool
    name: str = ""
    """The key, if it is one of the document itself."""


class Fold(Enum):
    """What the lines of a long value are."""

    BLOCK = "block"
    """Text after ``|`` or ``>``: every character counts, but for the indentation."""
    TEXT = "text"
    """A plain or quoted text over several lines: how far they are indented does not count."""
    FLOW = "flow"
    """A list or mapping in brackets."""


class Span(NamedTuple):
    """A value over several lines."""

    first: int
    """Where it begins; its other lines follow."""
    last: int
    fold: Fold
    source: int
    """How far the text is indented; for `Fold.BLOCK` alone."""
    target: int
    """Likewise, where it belongs."""


@dataclass(slots=True, kw_only=True)
class Layout:
    """What is known of the lines of a document, which count from 0."""

    starts: dict[int, list[Start]] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    """Lines that begin with a value whose key is on an earlier line: the column in which it belongs."""
    gaps: dict[int, tuple[int, int]] = field(default_factory=dict)
    """What is between a colon and the value after it, from column to column."""
    spans: list[Span] = field(default_factory=list)
    open: dict[int, tuple[Level, ...]] = field(default_factory=dict)
    """The lists and mappings that a line with a start is in."""


def read_layout(text: str, lines: list[str]) -> Layout:
    """Read where everything is; raises `NotMovableError`."""
    reader = _Reader(lines)
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            reader.take(token)
    except yaml.YAMLError as error:
        raise NotMovableError from error
    return reader.layout


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come."""

    level: Level
    is_list: bool
    in_item: bool = False
    """A mapping whose current value is a list in the mapping's own column."""


class _Reader:
    """Takes the tokens in their order."""

    def __init__(self, lines: list[str]) -> None:
        self.layout = Layout()
        self._lines = lines
        self._open: list[_Open] = []
        self._brackets = 0
        self._bracket_line = 0
        self._colon: tuple[int, int] | None = None
        self._names_next = False

    def take(self, token: yaml.Token) -> None:
        """Take the next token."""
        line, column = token.start_mark.line, token.start_mark.column
        match token:
            case yaml.FlowMappingStartToken() | yaml.FlowSequenceStartToken():
                self._open_bracket(line, column)
            case yaml.FlowMappingEndToken() | yaml.FlowSequenceEndToken():
                self._close_bracket(token.end_mark.line)
            case _ if not self._brackets:
                self._take_block(token, line, column)
            case _:
                pass

    def _take_block(self, token: yaml.Token, line: int, column: int) -> None:
        match token:
            case yaml.BlockMappingStartToken():
                self._begin(column, is_list=False)
            case yaml.BlockSequenceStartToken():
                self._begin(column, is_list=True)
            case yaml.BlockEndToken():
                self._open.pop()
            case yaml.BlockEntryToken():
                self._start_item(line, column)
            case yaml.KeyToken():
                self._start_key(line, column)
            case yaml.ValueToken():
                self._colon = (line, column)
            case yaml.ScalarToken():
                self._take_scalar(token)
            case _:
                pass

    def _begin(self, column: int, *, is_list: bool) -> None:
        outer = self._open[-1] if self._open else None
        if outer is None:
            target = 0
        elif is_list and not outer.is_list and not outer.in_item:
            target = outer.level.target
        else:
            target = outer.level.target + STEP
        self._open.append(_Open(Level(column, target), is_list))

    def _start_item(self, line: int, column: int) -> None:
        inner = self._innermost()
        inner.in_item = not inner.is_list
        self._start(line, Start(column, inner.level.target, is_dash=True))

    def _start_key(self, line: int, column: int) -> None:
        inner = self._innermost()
        inner.in_item = False
        if self._lines[line][column : column + 1] == "?":
            raise NotMovableError
        self._names_next = len(self._open) == 1
        self._start(line, Start(column, inner.level.target, is_dash=False))

    def _innermost(self) -> _Open:
        if not self._open:
            raise NotMovableError
        return self._open[-1]

    def _start(self, line: int, start: Start) -> None:
        self.layout.starts.setdefault(line, []).append(start)
        self.layout.open[line] = tuple(each.level for each in self._open)

    def _open_bracket(self, line: int, column: int) -> None:
        if not self._brackets:
            self._bracket_line = line
            self._place_value(line, column)
        self._brackets += 1

    def _close_bracket(self, line: int) -> None:
        self._brackets -= 1
        if not self._brackets and line > self._bracket_line:
            self.layout.spans.append(Span(self._bracket_line, line, Fold.FLOW, 0, 0))

    def _take_scalar(self, token: yaml.ScalarToken) -> None:
        first, column = token.start_mark.line, token.start_mark.column
        if self._names_next:
            self._names_next = False
            started = self.layout.starts[first]
            started[-1] = started[-1]._replace(name=token.value)
            return
        self._place_value(first, column)
        if token.style in {"|", ">"}:
            self._add_block(token)
        elif token.end_mark.line > first:
            target = self._open[-1].level.target + STEP if self._open else 0
            self.layout.spans.append(Span(first, token.end_mark.line, Fold.TEXT, 0, target))

    def _add_block(self, token: yaml.ScalarToken) -> None:
        """Find the lines of a text after ``|`` or ``>``; blank ones at its end count only after ``+``."""
        first, end = token.start_mark.line, token.end_mark
        header = self._lines[first][token.start_mark.column :].split("#")[0]
        last = end.line - 1 if end.column == 0 else end.line
        if "+" not in header:
            while last > first and not self._lines[last].strip(" "):
                last -= 1
        outer = self._open[-1].level if self._open else Level(-1, -1)
        given = _DIGIT.search(header)
        if given is not None:
            source, target = outer.source + int(given[0]), outer.target + int(given[0])
        else:
            filled = (line for line in self._lines[first + 1 : last + 1] if line.strip(" "))
            source, target = _indent(next(filled, "")), max(outer.target, 0) + STEP
        self.layout.spans.append(Span(first, last, Fold.BLOCK, source, target))

    def _place_value(self, line: int, column: int) -> None:
        if self._colon is not None and self._colon[0] == line:
            self.layout.gaps[line] = (self._colon[1] + 1, column)
        self._colon = None
        if line not in self.layout.starts and not self._lines[line][:column].strip():
            self.layout.values[line] = self._open[-1].level.target + STEP if self._open else 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def levels_around(layout: Layout, line: int) -> Iterator[Level]:
    """Yield the lists and mappings that the starts before and after a line are in."""
    before = max((each for each in layout.open if each < line), default=None)
    after = min((each for each in layout.open if each > line), default=None)
    for each in (before, after):
        yield from layout.open[each] if each is not None else ()
