"""Estimates from its text how long an expression could take at worst.

The engine stops after 10,000 steps of all loops together, but a step may be long, and blocks the interpreter meanwhile.
So the estimate counts what a step does with strings and lists, for the largest data that `admissible_data` accepts.
"""

from typing import Final

from authplane.cel.check.admissible_data import MOST_ELEMENTS, MOST_STRING
from authplane.cel.check.regex_patterns import pattern_size
from authplane.cel.syntax.tree import Call, Const, Entries, Items, Loop, Node, parts, path_of, walk
from authplane.cel.syntax.vocabulary import MAPS, Kind, Macro, Vocabulary
from authplane.core.values import dataclass

MOST_WORK: Final = 5_000_000
"""In units of about 0.1 microseconds."""
MOST_STEPS: Final = 10_000
"""As many steps of loops does the engine take."""
USUAL_ELEMENTS: Final = 100
"""How long a list of the data is taken to be when loops within loops are judged."""

_PER_BYTE: Final = {
    "_+_": 1 / 20, "size": 1 / 40, "string": 1 / 40, "bytes": 1 / 40,
}  # fmt: skip
_PER_INSTRUCTION: Final = 1 / 20
"""Of a pattern, for each byte: the worst of patterns, for which RE2 finds no short cut."""
_PER_PLACE: Final = 1 / 12
_PER_PLACE_AND_BYTE: Final = 1 / 6_000
"""The engine compares what it looks for at every place of a string."""
_ANY_SIZE: Final = frozenset({"_[_]", "_?_:_", "_+_", "dyn", "string", "bytes"})
"""What may return as much as it is given; other functions return a number or a bool."""
_WHOLE_DATA: Final = 10_000
"""The work of comparing the largest data with itself."""
_SHARE: Final = 256
"""The bytes of one element, where all elements of a list share the largest data."""
_FEW: Final = 32
"""The members of one element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an expression may take."""

    steps: int
    """Of its loops, for data of the usual size."""
    work: float
    """For the largest data."""


@dataclass(frozen=True, slots=True)
class _Around:
    """The loops around a part of the expression."""

    usual: int = 1
    worst: int = 1
    inner: str = ""
    """The variable of the innermost loop. All its values together are no larger than the data, so its share of each
    step is small; those of the loops further out come again and again."""


def estimate(tree: Node, vocabulary: Vocabulary) -> Cost:
    """Return what an expression may take at worst."""
    return _Estimate(vocabulary).cost(tree, _Around())


class _Estimate:
    """Adds up the cost of one expression."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def cost(self, node: Node, around: _Around) -> Cost:
        if isinstance(node, Loop):
            return self._loop(node, around)
        below = [self.cost(each, around) for each in parts(node)]
        return Cost(
            steps=max((each.steps for each in below), default=around.usual),
            work=sum(each.work for each in below) + around.worst * self._own_work(node, around),
        )

    def _loop(self, loop: Loop, around: _Around) -> Cost:
        usual, worst = self._elements(loop.over)
        inside = _Around(around.usual * usual, min(MOST_STEPS, around.worst * worst), loop.variable)
        over = self.cost(loop.over, around)
        below = [self.cost(each, inside) for each in (loop.test, loop.result) if each is not None]
        # A list that grows is one more thing to do at every step.
        grows = 2 if loop.macro in {Macro.MAP, Macro.FILTER} else 1
        return Cost(
            steps=max(over.steps, *(each.steps for each in below)),
            work=over.work + sum(each.work for each in below) + inside.worst * grows,
        )

    def _elements(self, over: Node) -> tuple[int, int]:
        """Return how many elements there usually are, and at most."""
        match over:
            case Items(values=values):
                return len(values), len(values)
            case Entries(pairs=pairs):
                return len(pairs), len(pairs)
            case Loop(over=within):
                return self._elements(within)
            case _:
                bounded = path_of(over) is not None and self._kind(over) not in MAPS
                return USUAL_ELEMENTS, MOST_ELEMENTS if bounded else MOST_STEPS

    def _own_work(self, node: Node, around: _Around) -> float:
        match node:
            case Call(function="@in", args=(_, Items(values=values))):
                return len(values)
            case Call(function="@in", args=(_, container)):
                few = _is_inner(container, around) or self._kind(container) in MAPS
                return _FEW if few else self._elements(container)[1]
            case Call(function="_==_" | "_!=_", args=args):
                return 1 if any(self._is_small(each, around) for each in args) else _WHOLE_DATA
            case Call():
                return 1 + self._text_work(node, around)
            case _:
                return 1

    def _text_work(self, call: Call, around: _Around) -> float:
        match call:
            case Call(function="matches", target=target, args=(*before, Const(value=str(pattern)))):
                subject = self._length(target or before[0], around)
                return subject * pattern_size(pattern) * _PER_INSTRUCTION
            case Call(function="contains", target=target, args=(part,)) if target is not None:
                subject = self._length(target, around)
                return subject * (_PER_PLACE + self._length(part, around) * _PER_PLACE_AND_BYTE)
            case Call(function=function, target=target, args=args) if function in _PER_BYTE:
                every = args if target is None else (target, *args)
                return sum(self._length(each, around) for each in every) * _PER_BYTE[function]
            case _:
                return 0

    def _is_small(self, node: Node, around: _Around) -> bool:
        """Tell whether a comparison with a node is soon done."""
        if isinstance(node, Call) and node.function not in _ANY_SIZE:
            return True
        return isinstance(node, Const | Items | Entries) or _is_inner(node, around) or self._kind(node) is Kind.STRING

    def _length(self, node: Node, around: _Around) -> int:
        """Return how many bytes a string may have."""
        match node:
            case Const(value=str(text)):
                return len(text)
            case Const() | Call(function="size" | "int" | "double" | "type"):
                return 1
            case Call(function="_+_", args=args):
                return sum(self._length(each, around) for each in args)
            case Items() | Entries():
                return sum(1 for _ in walk(node))
            case _:
                return _SHARE if _is_inner(node, around) else MOST_STRING

    def _kind(self, node: Node) -> Kind | None:
        path = path_of(node)
        variable = None if path is None else self._vocabulary.by_name.get(".".join(path))
        return None if variable is None else variable.kind


def _is_inner(node: Node, around: _Around) -> bool:
    path = path_of(node)
    return path is not None and path[0] == around.inner
