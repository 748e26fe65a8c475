"""Shows why a program is true or not: the value of every part, and what must change."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from authplane.cel.check.engine import ERROR, TYPE, load, plain_value, type_name
from authplane.cel.check.expression_outcome import Code, Failed, Outcome
from authplane.cel.check.program import Program
from authplane.cel.evaluate.evaluation import build_data, evaluate, failure
from authplane.cel.evaluate.facts import Lookup
from authplane.cel.explain.hints import find_hints
from authplane.cel.explain.shown_values import path_text, shown
from authplane.cel.syntax.expression_problem import CelProblem, position
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.tree import Const, Has, Ident, Items, Loop, Node, parts, path_of, walk
from authplane.cel.syntax.vocabulary import TYPES
from authplane.cel.wire.expressions import parse_parts
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Shown:
    """A value, written as CEL writes it and cut if it is long."""

    text: str


@dataclass(frozen=True, slots=True)
class Hidden:
    """A secret value, which the explanation must not show."""


Value: TypeAlias = Shown | Hidden | Failed

TRUE: Final = Shown("true")
FALSE: Final = Shown("false")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of an expression with its value; literals are left out."""

    text: str
    value: Value
    line: int
    column: int
    parts: tuple["Part", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a program says, and why."""

    outcome: Outcome
    root: Part
    hints: tuple[str, ...]
    """What must change for it to be true; empty if it is, or if there is no simple change."""


def explain(program: Program, lookup: Lookup, *, secret: Callable[[str], bool]) -> Explanation:
    """Evaluate a program part by part. ``secret`` tells for a path such as ``identity.email`` whether to hide it."""
    outcome = evaluate(program, lookup)
    values = _values(program, lookup)
    reader = _Reader(program, values, secret)
    return Explanation(
        outcome=outcome, root=reader.part(program.tree), hints=find_hints(program.tree, values, reader.is_secret)
    )


def _values(program: Program, lookup: Lookup) -> Mapping[int, Any]:
    """Evaluate every part for itself: plain values by the ids of nodes, or why there is none."""
    wanted = frozenset({program.tree.id, *(each.id for each in _visible(program.tree))})
    data = build_data(program, lookup)
    if isinstance(data, Failed):
        return dict.fromkeys(wanted, data)
    parts_of = parse_parts(program.checked, wanted)
    return {id_: _value(load(part, program.vocabulary), data) for id_, part in parts_of.items()}


def _value(running: Any, data: dict[str, Any]) -> Any:
    if isinstance(running, CelProblem):
        return Failed(Code.EVALUATION_FAILED)
    try:
        result = running.eval(data=data)
        value = plain_value(result)
    except (RuntimeError, ValueError, TypeError) as error:
        return failure(str(error))
    if result.type() == ERROR:
        return failure(str(value))
    return Shown(type_name(value)) if isinstance(value, TYPE) else value


def _visible(node: Node) -> list[Node]:
    """Return the nodes that have a value of their own: no literals, no steps on a path, nothing inside of a loop."""
    if isinstance(node, Const) or (isinstance(node, Ident) and node.name in TYPES):
        return []
    if isinstance(node, Items) and all(isinstance(each, Const) for each in node.values):
        return []
    if path_of(node) is not None:
        return [node]
    return [node, *(each for part in _shown_parts(node) for each in _visible(part))]


def _shown_parts(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Loop):
        return (node.over,)
    return () if path_of(node) is not None or isinstance(node, Has) else parts(node)


class _Reader:
    """Turns values into what may be shown."""

    def __init__(self, program: Program, values: Mapping[int, Any], secret: Callable[[str], bool]) -> None:
        self._text = program.text
        self._values = values
        self._secret = secret

    def part(self, node: Node) -> Part:
        line, column = position(self._text, node.at)
        below = (each for part in _shown_parts(node) for each in _visible(part)[:1])
        return Part(
            text=render_text(node),
            value=self._shown(node),
            line=line,
            column=column,
            parts=tuple(self.part(each) for each in below),
        )

    def is_secret(self, node: Node) -> bool:
        """Tell whether a node reads anything that is to be hidden. Objects always are: anything may be in them."""
        paths = {path for each in walk(node) if (path := path_of(each)) is not None}
        return isinstance(self._values.get(node.id), dict) or any(self._secret(path_text(path)) for path in paths)

    def _shown(self, node: Node) -> Value:
        value = self._values.get(node.id, Failed(Code.EVALUATION_FAILED))
        if isinstance(value, Failed | Shown):
            return value
        if isinstance(value, bool):
            return TRUE if value else FALSE
        return Hidden() if self.is_secret(node) else Shown(shown(value))
