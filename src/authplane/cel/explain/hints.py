"""Says what must change for an expression to be true, where that is simple."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from authplane.cel.check.expression_outcome import Code, Failed
from authplane.cel.explain.shown_values import shown
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.tree import Call, Const, Has, Items, Node, path_of

_MOST: Final = 10

_TEXT_TESTS: Final = {
    "startsWith": "start with",
    "endsWith": "end with",
    "contains": "contain",
    "matches": "match",
}
_OPPOSITE: Final = {"_<_": "_>=_", "_>=_": "_<_", "_>_": "_<=_", "_<=_": "_>_", "_==_": "_!=_", "_!=_": "_==_"}
_WORDS: Final = {
    "_==_": "be", "_!=_": "not be", "_<_": "be less than", "_<=_": "be at most",
    "_>_": "be more than", "_>=_": "be at least",
}  # fmt: skip
_TURNED: Final = {"_<_": "_>_", "_>_": "_<_", "_<=_": "_>=_", "_>=_": "_<=_"}


def find_hints(tree: Node, values: Mapping[int, Any], secret: Callable[[Node], bool]) -> tuple[str, ...]:
    """Return one sentence for each thing that would have to change; several have to change together."""
    return tuple(dict.fromkeys(_Hints(values, secret).wanted(tree, to=True)))[:_MOST]


class _Hints:
    """Looks for what keeps one expression from having the value that is wanted."""

    def __init__(self, values: Mapping[int, Any], secret: Callable[[Node], bool]) -> None:
        self._values = values
        self._secret = secret

    def wanted(self, node: Node, *, to: bool) -> list[str]:
        """Say what has to change so that a node is true, or false."""
        if self._values.get(node.id) is to:
            return []
        match node:
            case Call(function="!_", args=(operand,)):
                return self.wanted(operand, to=not to)
            case Call(function="_&&_" | "_||_" as function, args=args):
                each_way = [self.wanted(each, to=to) for each in args]
                if (function == "_&&_") is to:
                    return [each for way in each_way for each in way]
                return _either(each_way)
            case Call(function=function, target=None, args=(left, right)) if function in _WORDS:
                return self._compared(function if to else _OPPOSITE[function], left, right)
            case _:
                return [self._asked(node, to=to)]

    def _asked(self, node: Node, *, to: bool) -> str:
        match node:
            case Has(operand=operand, field=field):
                return f"{render_text(operand)}.{field} must be {'present' if to else 'absent'}"
            case Call(function="@in", args=(element, Items() as container)):
                return self._sentence(element, f"be {'one' if to else 'none'} of {render_text(container)}")
            case Call(function="@in", args=(element, container)):
                return self._sentence(container, f"{'contain' if to else 'not contain'} {render_text(element)}")
            case Call(function=function, target=target, args=(argument,)) if target and function in _TEXT_TESTS:
                verb = _TEXT_TESTS[function] if to else f"not {_TEXT_TESTS[function]}"
                return self._sentence(target, f"{verb} {render_text(argument)}")
            case _:
                return f"{render_text(node)} must be {'true' if to else 'false'}"

    def _compared(self, function: str, left: Node, right: Node) -> list[str]:
        if isinstance(left, Const) and not isinstance(right, Const):
            left, right, function = right, left, _TURNED.get(function, function)
        return [self._sentence(left, f"{_WORDS[function]} {render_text(right)}")]

    def _sentence(self, node: Node, should: str) -> str:
        return f"{render_text(node)} must {should}{self._now(node)}"

    def _now(self, node: Node) -> str:
        """Say what a path is now, unless it is secret."""
        value = self._values.get(node.id)
        if path_of(node) is None:
            return ""
        if isinstance(value, Failed):
            return "; it is missing" if value.code is Code.NO_SUCH_KEY else ""
        return "" if value is None or self._secret(node) else f"; it is {shown(value)}"


def _either(ways: list[list[str]]) -> list[str]:
    """Join alternatives: each is what has to change together."""
    said = [" and ".join(way) for way in ways if way]
    return [", or ".join(said)] if said else []
