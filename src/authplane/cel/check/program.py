"""Compiles expressions from text to programs."""

from dataclasses import field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from authplane.cel.check.expression_result import Result
from authplane.cel.syntax.expression_problem import CelProblem, Reason, problem_at
from authplane.cel.syntax.read_paths import Read
from authplane.cel.syntax.tree import Node
from authplane.cel.syntax.vocabulary import MAPS, Kind, Vocabulary
from authplane.core.values import dataclass

if TYPE_CHECKING:
    # Only named here: it brings the engine, and most who know programs have none to compile.
    from authplane.cel.check.checked_text import Checked

LARGEST_TEXT: Final = 4_096
"""In bytes."""


@dataclass(frozen=True, slots=True)
class Step:
    """How one variable gets into the data that the engine is given."""

    variable: str
    kind: Kind
    above: tuple[str, ...]
    """The namespaces around it, from the outside."""
    name: str
    keys: tuple[str, ...] | None
    """The keys of a map that are needed; None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """An expression that was checked. Two of the same text and vocabulary are equal."""

    text: str
    vocabulary: Vocabulary
    checked: bytes = field(repr=False, compare=False)
    """A ``google.protobuf.Any`` with the ``cel.expr.CheckedExpr``, serialized."""
    tree: Node = field(repr=False, compare=False)
    reads: tuple[Read, ...] = field(repr=False, compare=False)
    """Everything that it can look at."""
    steps: tuple[Step, ...] = field(repr=False, compare=False)
    empty: tuple[str, ...] = field(repr=False, compare=False)
    """The namespaces that are always there, though nothing may be in them."""
    untyped: bool = field(repr=False, compare=False)
    """Whether the type of its result is known only when a request comes: only then can it be null."""
    running: Any = field(repr=False, compare=False)
    """The engine's form of it."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables that have to be known."""
        return tuple(each.variable.name for each in self.reads)

    @property
    def paths(self) -> tuple[str, ...]:
        """What it reads as people write it: ``identity.group``."""
        return tuple(path for each in self.reads for path in each.paths)


# To check a short one takes 1,000 µs, to find it here 1.3 µs. Policies repeat expressions, and gRPC programs get all of
# theirs again with each change of their configuration.
@lru_cache(maxsize=16_384)
def compile_expression(
    text: str, vocabulary: Vocabulary, result: Result = Result.PERHAPS_BOOL
) -> Program | tuple[CelProblem, ...]:
    """Check an expression: the program, or everything that is wrong with it. The same text is checked once."""
    unreadable = _unreadable(text)
    if unreadable is not None:
        return (unreadable,)
    from authplane.cel.check.checked_text import check_text  # noqa: PLC0415 (only expressions need the engine: 0.05 s)

    found = check_text(text, vocabulary, result)
    return found if isinstance(found, tuple) else _program(text, vocabulary, found)


def _unreadable(text: str) -> CelProblem | None:
    """Refuse what must not reach the engine's parser."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return CelProblem(reason=Reason.SYNTAX, message="The expression is not valid Unicode. Use UTF-8 text.")
    if size > LARGEST_TEXT:
        message = f"The expression has {size} bytes; the maximum is {LARGEST_TEXT}. Shorten it."
        return CelProblem(reason=Reason.TOO_LARGE, message=message)
    if "\0" in text:
        return problem_at(text, text.index("\0"), Reason.SYNTAX, "The expression contains a NUL character. Remove it.")
    return None


def _program(text: str, vocabulary: Vocabulary, found: "Checked") -> Program:
    return Program(
        text=text,
        vocabulary=vocabulary,
        checked=found.form,
        tree=found.tree,
        reads=found.reads,
        steps=tuple(_step(each) for each in found.reads),
        empty=tuple(sorted(vocabulary.roots & vocabulary.namespaces & {_root(each) for each in found.reads})),
        untyped=found.untyped,
        running=found.running,
    )


def _step(read: Read) -> Step:
    *above, name = read.variable.name.split(".")
    keys = tuple(sorted(read.keys)) if read.keys is not None and read.variable.kind in MAPS else None
    return Step(read.variable.name, read.variable.kind, tuple(above), name, keys)


def _root(read: Read) -> str:
    return read.variable.name.partition(".")[0]
