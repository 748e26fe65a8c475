"""Problems found in configuration, each with the path to the field at fault."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from authplane.core.values import dataclass

MOST: Final = 10_000
"""Maximum number of errors of one document: a few megabytes could have a million, each with a long path."""

Path: TypeAlias = tuple[str | int, ...]
"""The path to a field from the root of its document: names and list indexes."""


class Severity(StrEnum):
    """What a problem costs."""

    ERROR = "error"
    """The document is not used."""
    WARNING = "warning"
    """The document is used; its author should know."""


class Inside(NamedTuple):
    """A character of an expression, by line and column, both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one field."""

    path: Path
    reason: str
    message: str
    severity: Severity = Severity.ERROR
    inside: Inside | None = None
    """Where the problem is in the text of the field, if that is an expression."""

    def __str__(self) -> str:
        where = dotted(self.path)
        return f"{where}: {self.words} [{self.reason}]" if where else f"{self.words} [{self.reason}]"

    @property
    def words(self) -> str:
        """The message with the position in the expression, for readers that see no file."""
        if self.inside is None:
            return self.message
        line = f"line {self.inside.line}, " if self.inside.line > 1 else ""
        return f"At {line}column {self.inside.column} of the expression: {self.message}"


class Problems:
    """Collects every problem of a document, so that a user fixes them in one pass; of errors at most `MOST`."""

    def __init__(self) -> None:
        self._path: list[str | int] = []
        self._found: list[Problem] = []
        self._error_count = 0

    def at(self, *steps: str | int) -> "_Steps":
        """Report problems inside the block under these field names or list indexes."""
        return _Steps(self._path, steps)

    def add(self, reason: str, message: str, inside: Inside | None = None) -> None:
        """Record an error at the current path."""
        self._error_count += 1
        if self._error_count < MOST:
            self._found.append(Problem(tuple(self._path), reason, printable(message), inside=inside))
        elif self._error_count == MOST:
            self._found.append(
                Problem((), "TooMany", f"Only the first {MOST - 1} errors are listed. Correct these first.")
            )

    def warn(self, reason: str, message: str, inside: Inside | None = None) -> None:
        """Record a warning at the current path."""
        self._found.append(Problem(tuple(self._path), reason, printable(message), Severity.WARNING, inside))

    def extend(self, found: Iterable[Problem]) -> None:
        """Take over problems that have their paths already, each once."""
        known = set(self._found)
        for problem in found:
            if problem not in known:
                known.add(problem)
                self._found.append(problem)
                self._error_count += problem.severity is Severity.ERROR

    @property
    def error_count(self) -> int:
        """How many errors there are so far: who reads a part of a document can tell whether it had any."""
        return self._error_count

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that keep the document from being used."""
        return tuple(problem for problem in self._found if problem.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The problems that its author should know of."""
        return tuple(problem for problem in self._found if problem.severity is Severity.WARNING)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self._found)

    def __bool__(self) -> bool:
        return bool(self._found)


class _Steps:
    """A few steps down the path, for the time of a block. Not a generator: every field of every document takes one."""

    __slots__ = ("_path", "_steps")

    def __init__(self, path: list[str | int], steps: Path) -> None:
        self._path = path
        self._steps = steps

    def __enter__(self) -> None:
        self._path.extend(self._steps)

    def __exit__(self, *_: object) -> None:
        del self._path[len(self._path) - len(self._steps) :]


def printable(text: str) -> str:
    """Escape what could garble a terminal or a log: messages quote what people wrote."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def dotted(path: Path) -> str:
    """Write a path as people do: ``spec.routes[2].services``."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
