"""Strict YAML: the text of one document to nodes with line and column.

The parser's events are read in a loop, so nesting costs no stack. What makes YAML surprising is refused: anchors,
aliases, tags, merge keys, duplicate keys, keys that are not text. Scalars follow the core schema of YAML 1.2, except
that a number with leading zeros is text.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeGuard

import yaml

from authplane.core.problems import Path, Problem
from authplane.core.values import dataclass

DEEPEST: Final = 64
"""Maximum nesting of lists and mappings."""


class Scalar(NamedTuple):
    """A text, number, truth value or null; only a plain one (without quotes) can be other than text."""

    text: str
    plain: bool
    line: int
    column: int
    literal: bool = False
    """A block after ``|``: its lines are lines of the document, from the next one on."""


class Items(NamedTuple):
    """A list."""

    items: tuple["Node", ...]
    line: int
    column: int


class Entry(NamedTuple):
    """A value and the position of its key."""

    node: "Node"
    line: int
    column: int


class Fields(NamedTuple):
    """A mapping; of a duplicate key, the first value."""

    entries: Mapping[str, Entry]
    line: int
    column: int


class Shared(Fields):
    """A mapping that several documents have in common; readers keep here what they made of it."""

    made: dict[type, object]


Node: TypeAlias = Scalar | Items | Fields
Value: TypeAlias = str | int | float | bool | None


class Spot(NamedTuple):
    """A problem and its position in the text."""

    problem: Problem
    line: int
    column: int


class Parsed(NamedTuple):
    """The root of a document, or None where there is none to speak of, and what is wrong with the text."""

    root: Node | None
    spots: tuple[Spot, ...]


def parse_nodes(text: str) -> Parsed:
    """Read the one document in ``text``; a text without content gives no root and no problem."""
    control = _CONTROL.search(text)
    if control:
        return Parsed(None, (_control_spot(text, control.start()),))
    builder = _Builder()
    try:
        builder.read(LOADER(text))
    except yaml.MarkedYAMLError as error:
        return Parsed(None, (_syntax_spot(error, text),))
    except yaml.YAMLError:
        return Parsed(None, (Spot(Problem((), SYNTAX, "This is not YAML. Correct the syntax."), 1, 1),))
    except _Refused as refused:
        return Parsed(None, (refused.spot,))
    return Parsed(builder.root, tuple(builder.spots))


def value_of(scalar: Scalar) -> Value:
    """Return what a scalar means by the core schema."""
    text = scalar.text
    if not scalar.plain or (text and text[0] not in _MAY_MEAN):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _DECIMAL.fullmatch(text):
        return int(text) if len(text) <= _LONGEST_NUMBER else float("inf")
    if _RADIX.fullmatch(text):
        return int(text, 0) if len(text) <= _LONGEST_NUMBER else float("inf")
    return float(text.replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text.lower()) else text


def plain(node: Node) -> Any:
    """Return what a node means by the core schema, as JSON has it; a number that JSON has not stays its text."""
    match node:
        case Fields(entries=entries):
            return {name: plain(entry.node) for name, entry in entries.items()}
        case Items(items=items):
            return [plain(item) for item in items]
        case Scalar():
            value = value_of(node)
            return node.text if isinstance(value, float) and not math.isfinite(value) else value


def is_null(node: Node) -> bool:
    """Tell whether a node is null, which counts as absent."""
    return isinstance(node, Scalar) and node.plain and node.text in _NULLS


LOADER: Final[type[yaml.SafeLoader | yaml.CSafeLoader]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
SYNTAX: Final = "YamlInvalid"
REFUSED: Final = "YamlNotAllowed"
DUPLICATE: Final = "DuplicateKey"
TAGGED: Final = "A tag (!) is not allowed. Remove it."

# What YAML calls non-printable, and the breaks that only YAML 1.1 knows: lines would be counted in two ways.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
_MAY_MEAN: Final = frozenset("~nNtTfF.+-0123456789")
_WORDS: Final[Mapping[str, Value]] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_DECIMAL: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_RADIX: Final = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:e[-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.ASCII
)
_LONGEST_NUMBER: Final = 40
_UNLIKE_NAMES: Final = frozenset(("", "<", *".+-0123456789"))
_NULLS: Final = frozenset(word for word, value in _WORDS.items() if value is None)
_NOWHERE: Final = Scalar("", True, 1, 1)


class _Refused(Exception):  # noqa: N818 (leaves the loop; it never leaves this module)
    """Reading stops here."""

    def __init__(self, spot: Spot) -> None:
        super().__init__(spot.problem.message)
        self.spot = spot


class _Parser(Protocol):
    """Gives events, the last of which is the end of the stream."""

    def get_event(self) -> yaml.Event | None: ...


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come."""

    line: int
    column: int
    items: list[Node] | None
    entries: dict[str, Entry]
    key: Scalar | None = None
    skip: bool = False
    """The value to come belongs to a key that was refused."""


class _Builder:
    """Turns events into nodes."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.spots: list[Spot] = []
        self._outer: list[_Open] = []
        self._into: _Open | None = None
        self._documents = 0

    def read(self, parser: _Parser) -> None:
        """Take every event."""
        next_event, put, scalar_event, end_event = (
            parser.get_event,
            self._put,
            yaml.ScalarEvent,
            yaml.CollectionEndEvent,
        )
        while True:
            event = next_event()
            if isinstance(event, scalar_event):
                mark = event.start_mark
                plain = event.implicit[0]
                node = (
                    Scalar(event.value, plain, mark.line + 1, mark.column + 1, event.style == "|") if mark else _NOWHERE
                )
                if not plain or event.anchor is not None:
                    self._check_scalar(event, node)
                put(node)
            elif isinstance(event, end_event):
                put(self._ended())
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event)
            elif isinstance(event, yaml.StreamEndEvent):
                return
            else:
                self._rare(event)

    def _rare(self, event: yaml.Event | None) -> None:
        if isinstance(event, yaml.AliasEvent):
            line, column = _position(event)
            self._refuse("An alias (*) is not allowed. Write the value out.", line, column)
            self._put(Scalar("", True, line, column))
        elif isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                message = (
                    "A second document starts here, but this file can have only one. "
                    "Move the second document to another file."
                )
                raise _Refused(Spot(Problem((), SYNTAX, message), *_position(event)))

    def _check_scalar(self, event: yaml.ScalarEvent, node: Scalar) -> None:
        if event.tag is not None or event.anchor is not None:
            self._refuse_properties(event)
        if "\0" in node.text:
            problem = Problem(self._path(), SYNTAX, "The character U+0000 is not allowed. Remove it.")
            self.spots.append(Spot(problem, node.line, node.column))

    def _start(self, event: yaml.CollectionStartEvent) -> None:
        line, column = _position(event)
        if event.tag is not None or event.anchor is not None:
            self._refuse_properties(event)
        if len(self._outer) >= DEEPEST - 1:
            message = f"Lists and mappings are nested more than {DEEPEST} levels deep. Use fewer levels."
            raise _Refused(Spot(Problem((), SYNTAX, message), line, column))
        if self._into is not None:
            self._outer.append(self._into)
        self._into = _Open(line, column, None if isinstance(event, yaml.MappingStartEvent) else [], {})

    def _ended(self) -> Node:
        """Close the innermost list or mapping."""
        done = self._into
        if done is None:
            return _NOWHERE
        self._into = self._outer.pop() if self._outer else None
        if done.items is None:
            return Fields(done.entries, done.line, done.column)
        return Items(tuple(done.items), done.line, done.column)

    def _put(self, node: Node) -> None:
        """Add a finished node to the node that contains it."""
        into = self._into
        if into is None:
            self.root = node
        elif into.items is not None:
            into.items.append(node)
        elif into.skip:
            into.skip = False
        elif into.key is not None:
            key = into.key
            into.entries[key.text] = Entry(node, key.line, key.column)
            into.key = None
        elif _is_name(node) and node.text not in into.entries:
            into.key = node
        else:
            self._odd_key(into, node)

    def _odd_key(self, into: _Open, node: Node) -> None:
        """Take a node as the key of the value to come, or refuse it."""
        into.skip = True
        if not isinstance(node, Scalar):
            self._refuse("A key must be a string, not a list or a mapping. Use a string.", node.line, node.column)
        elif node.plain and node.text == "<<":
            self._refuse("A merge key (<<) is not allowed. Write the fields out.", node.line, node.column)
        elif not isinstance(value_of(node), str):
            self._refuse("A key must be a string. Put it in quotes.", node.line, node.column)
        elif node.text in into.entries:
            first = into.entries[node.text].line
            message = (
                f"The key {node.text!r} occurs twice in this mapping, on lines {first} and {node.line}. Remove one "
                "of them."
            )
            self.spots.append(Spot(Problem(self._path(node.text), DUPLICATE, message), node.line, node.column))
        else:
            into.key, into.skip = node, False

    def _refuse_properties(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        line, column = _position(event)
        if event.anchor is not None:
            self._refuse("An anchor (&) is not allowed. Write the value out where it is used.", line, column)
        if event.tag is not None:
            self._refuse(TAGGED, line, column)

    def _refuse(self, message: str, line: int, column: int) -> None:
        self.spots.append(Spot(Problem(self._path(), REFUSED, message), line, column))

    def _path(self, *last: str) -> Path:
        """Return the path of the next node."""
        parts = self._outer if self._into is None else [*self._outer, self._into]
        steps = (part.key and part.key.text if part.items is None else len(part.items) for part in parts)
        return (*_known(steps), *_known(last))


def _known(steps: Iterable[str | int | None]) -> Iterator[str | int]:
    """Pass on the steps up to the first that is unknown or cannot be shown."""
    for step in steps:
        if step is None or (isinstance(step, str) and not step.isprintable()):
            return
        yield step


def _is_name(node: Node) -> TypeGuard[Scalar]:
    """Tell at a glance that a key is text; others need a closer look."""
    return node.__class__ is Scalar and node.text[:1] not in _UNLIKE_NAMES and node.text not in _WORDS


def _position(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _control_spot(text: str, at: int) -> Spot:
    line = text.count("\n", 0, at) + 1
    message = f"The character U+{ord(text[at]):04X} is not allowed. Remove it."
    return Spot(Problem((), SYNTAX, message), line, at - text.rfind("\n", 0, at))


def _syntax_spot(error: yaml.MarkedYAMLError, text: str) -> Spot:
    """Say what the parser says, without the text around it: that may be a secret."""
    mark = error.problem_mark or error.context_mark
    said = ", ".join(part for part in (error.context, error.problem) if part)
    position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    if position[0] > text.count("\n") + 1:
        # For the parser, the end of the text is on a line of its own.
        position = text.count("\n") + 1, len(text) - text.rfind("\n")
    return Spot(Problem((), SYNTAX, f"This is not YAML: {_QUOTED.sub('…', said)}. Correct the syntax."), *position)


_QUOTED: Final = re.compile(r"""(['"])(?!<)[^'"]{2,}\1""")
