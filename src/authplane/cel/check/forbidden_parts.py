"""Finds parts of a syntax tree that the engine accepts and we do not."""

from collections.abc import Iterator
from typing import Final

from authplane.cel.check.cost_estimate import MOST_STEPS, MOST_WORK, estimate
from authplane.cel.check.regex_patterns import pattern_problem
from authplane.cel.syntax.expression_problem import CelProblem, Reason, problem_at
from authplane.cel.syntax.read_paths import Bare
from authplane.cel.syntax.tree import Call, Const, Has, Ident, Loop, Message, Node, parts, walk
from authplane.cel.syntax.vocabulary import OPERATORS, TYPES, Macro, Vocabulary

DEEPEST: Final = 32


def check_tree(tree: Node, text: str, vocabulary: Vocabulary, bare: tuple[Bare, ...]) -> tuple[CelProblem, ...]:
    """Return every problem of an expression whose types are right."""
    checker = _Checker(text, vocabulary)
    found = [*checker.scoped(tree, frozenset(), 1)]
    for node in walk(tree):
        found += checker.node(node)
    # A macro's variable that is named like a namespace would be taken for it.
    if not any(each.reason is Reason.SHADOWING for each in found):
        found += (checker.namespace(each) for each in bare)
    if not found:
        found += checker.cost(tree)
    return tuple(dict.fromkeys(sorted(found, key=lambda each: (each.line, each.column))))


class _Checker:
    """Checks one expression."""

    def __init__(self, text: str, vocabulary: Vocabulary) -> None:
        self._text = text
        self._vocabulary = vocabulary

    def scoped(self, node: Node, variables: frozenset[str], depth: int) -> Iterator[CelProblem]:
        """Check names, and which of them a macro's variable hides."""
        if depth > DEEPEST:
            yield self._problem(
                node, Reason.TOO_LARGE, f"The expression has more than {DEEPEST} nested levels. Simplify it."
            )
            return
        inside = variables
        match node:
            case Ident(name=name) if name not in variables | self._vocabulary.roots | TYPES:
                known = ", ".join(sorted(self._vocabulary.roots))
                yield self._problem(node, Reason.UNDECLARED, f"{name} is not defined. Supported variables: {known}.")
            case Loop(variable=variable):
                if variable in variables | self._vocabulary.roots | TYPES:
                    yield self._problem(node, Reason.SHADOWING, f"{variable} is already defined. Use another name.")
                inside = variables | {variable}
            case _:
                pass
        for each in parts(node):
            hidden = isinstance(node, Loop) and each is node.over
            yield from self.scoped(each, variables if hidden else inside, depth + 1)

    def node(self, node: Node) -> Iterator[CelProblem]:
        """Check one part of the expression."""
        match node:
            case Message(name=name):
                yield self._unsupported(node, f"Message {name}{{}}")
            case Const(value=str(value)) if "\0" in value:
                yield self._problem(node, Reason.NOT_ALLOWED, "The string contains a NUL character. Remove it.")
            case Has() if Macro.HAS not in self._vocabulary.macros:
                yield self._unsupported(node, "has()")
            case Loop(macro=macro) if macro not in self._vocabulary.macros:
                yield self._unsupported(node, f"{macro}()")
            case Call(function=function) if function not in self._vocabulary.functions:
                yield self._unsupported(node, _spelled(function))
            case Call(function="matches", args=args) if args:
                yield from self._pattern(args[-1])
            case _:
                pass

    def namespace(self, bare: Bare) -> CelProblem:
        """Say that a namespace is no value."""
        members = ", ".join(self._vocabulary.members(bare.name))
        return self._problem(bare.node, Reason.TYPE, f"{bare.name} is not a value. Use one of its members: {members}.")

    def cost(self, tree: Node) -> Iterator[CelProblem]:
        """Check how long the expression may take."""
        cost = estimate(tree, self._vocabulary)
        if cost.steps > MOST_STEPS:
            message = f"Nested loops take about {cost.steps:,} steps; the maximum is {MOST_STEPS:,}. Remove a loop."
            yield self._problem(tree, Reason.TOO_COSTLY, message)
        elif cost.work > MOST_WORK:
            message = "The evaluation can take too long. Use fewer operations on long strings and lists in loops."
            yield self._problem(tree, Reason.TOO_COSTLY, message)

    def _pattern(self, pattern: Node) -> Iterator[CelProblem]:
        if not isinstance(pattern, Const) or not isinstance(pattern.value, str):
            message = "The pattern of matches() is not a literal. Write it as a string in the expression."
            yield self._problem(pattern, Reason.REGEX, message)
            return
        wrong = pattern_problem(pattern.value)
        if wrong:
            yield self._problem(pattern, Reason.REGEX, f"The pattern of matches() {wrong}")

    def _unsupported(self, node: Node, what: str) -> CelProblem:
        message = f"{what} is not supported. Rewrite the expression without it."
        return self._problem(node, Reason.NOT_ALLOWED, message)

    def _problem(self, node: Node, reason: Reason, message: str) -> CelProblem:
        return problem_at(self._text, node.at, reason, message)


def _spelled(function: str) -> str:
    """Write an operator or function as people do."""
    if function not in OPERATORS:
        return f"{function}()"
    return {"@in": "in", "_?_:_": "?:", "_[_]": "[]"}.get(function, function.replace("_", ""))
