"""Reads matcher trees (unified matcher) from files and explains how a call matches."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from envoy.extensions.common.matching.v3 import extension_matcher_pb2 as matching_pb
from envoy.extensions.filters.http.composite.v3 import composite_pb2
from google.protobuf.message import DecodeError, Message
from xds.type.matcher.v3 import cel_pb2
from xds.type.matcher.v3 import matcher_pb2 as pb

from authplane.cel.calls.call_vocabulary import HEADERS, compile_call_expression
from authplane.cel.check.expression_outcome import Failed
from authplane.cel.explain.explain_expression import Hidden, Part, Shown, explain
from authplane.cel.syntax.vocabulary import Vocabulary
from authplane.core.problems import Inside, Path, Problem, Problems, Severity
from authplane.core.values import dataclass
from authplane.dataplane.filters.call_attributes import VOCABULARIES
from authplane.dataplane.filters.calls import Call, Side
from authplane.dataplane.filters.composite.authority_dependence import asks_authority
from authplane.dataplane.filters.composite.wire import EXECUTE_NAME, SKIP_NAME, composite_kinds
from authplane.dataplane.filters.registry import Scope, Trust
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.devkit.matching.message_files import TYPE, fill, spelled
from authplane.devkit.strict_files import Text, located
from authplane.matching.explain_tree import Explanation, Step
from authplane.matching.explain_tree import explain as explain_tree
from authplane.matching.expressions.expression_matcher import Attributes, ExpressionMatcher
from authplane.matching.expressions.wire import MATCHER, parse_cel_matcher
from authplane.matching.fractions import MILLION
from authplane.matching.matcher_tree import Matcher
from authplane.matching.tree_wire import Kinds, MatcherKind, ParseAction, ValueType, parse_tree
from authplane.matching.wire import parse_runtime_fraction
from authplane.resources.documents import Finding
from authplane.resources.typed.shapes import Report
from authplane.resources.yaml.nodes import Fields, Items, Node, Scalar, is_null

_XDS_MATCHER: Final = ("xds_matcher", "xdsMatcher")
_EXTENSION: Final = ("extension_config", "extensionConfig")
_NO_AUTHORITY: Final = Step(
    path=(), text="tree", matched=False, why="the tree reads the authority of the call, which is unknown"
)


@dataclass(frozen=True, slots=True)
class ActionText:
    """An action, in words."""

    type_name: str
    text: str


Tree: TypeAlias = Matcher[Call, ActionText]


class TreeFile(NamedTuple):
    """A tree, or why there is none: then there are errors among the findings."""

    text: Text
    tree: Tree | None
    composite: bool
    """It is that of a composite filter, which refuses calls without a match."""
    findings: tuple[Finding, ...]

    def place(self, path: Path) -> tuple[str, Path]:
        """Return the place of a path of the tree in the file, and the path as the file spells it."""
        found = spelled(self.text.root, (*self._before(), *path))
        return str(self.text.place(found)), found

    def name(self, path: Path) -> str:
        """Return the name that an extension of the tree has in the file."""
        node = _at(self.text.root, spelled(self.text.root, (*self._before(), *path, "name")))
        return node.text if isinstance(node, Scalar) else ""

    def explain(self, call: Call) -> Explanation[ActionText] | None:
        """Tell which way a call takes, and why."""
        if self.tree is not None and self.composite and call.authority is None and asks_authority(self.tree):
            return Explanation(_NO_AUTHORITY, None, (), ())
        return None if self.tree is None else explain_tree(self.tree, call, lambda action: action.text)

    def _before(self) -> Path:
        return _XDS_MATCHER[:1] if self.composite else ()


def parse_tree_file(text: Text, side: Side) -> TreeFile:
    """Read a ``Matcher``, or the configuration of a composite filter, with every problem."""
    root = text.root
    if root is None:
        return TreeFile(text, None, composite=False, findings=text.findings)
    composite = isinstance(root, Fields) and not root.entries.keys().isdisjoint((*_XDS_MATCHER, *_EXTENSION))
    report = Report()
    message: Message = matching_pb.ExtensionWithMatcher() if composite else pb.Matcher()
    fill(message, _untyped(root), (), report)
    problems = Problems()
    tree = _tree(message, _kinds(root, side, composite=composite), problems)
    found = [*report.problems, *_besides(report.problems, (_respelled(root, each) for each in problems))]
    findings = located(text, found)
    broken = any(finding.problem.severity is Severity.ERROR for finding in findings)
    return TreeFile(text, None if broken else tree, composite, findings)


def _tree(message: Message, kinds: Kinds[Call, ActionText], problems: Problems) -> Tree | None:
    match message:
        case matching_pb.ExtensionWithMatcher():
            with problems.at(_XDS_MATCHER[0]):
                if message.HasField("xds_matcher"):
                    return parse_tree(message.xds_matcher, kinds, problems)
                problems.add("Missing", "The filter has no tree and would allow every call. Set xds_matcher.")
                return None
        case pb.Matcher():
            return parse_tree(message, kinds, problems)
        case _:
            raise TypeError("only ExtensionWithMatcher and Matcher have trees")


def _besides(before: list[Problem], problems: Iterable[Problem]) -> Iterator[Problem]:
    """Leave out what is a problem only because something below it could not be read."""
    errors = [each.path for each in before if each.severity is Severity.ERROR]
    for problem in problems:
        if not any(path[: len(problem.path)] == problem.path for path in errors):
            yield problem


def _respelled(root: Node, problem: Problem) -> Problem:
    """Return a problem with the path that the file has to it; what is missing has the name that it needs."""
    there = spelled(root, problem.path)
    return replace(problem, path=(*there, *problem.path[len(there) :]))


def _untyped(node: Node) -> Node:
    """Return the message without ``@type`` among its fields, as an ``Any`` has it."""
    if isinstance(node, Fields) and TYPE in node.entries:
        entries = {name: entry for name, entry in node.entries.items() if name != TYPE}
        return Fields(entries, node.line, node.column)
    return node


# --- Supported inputs, matchers and actions


def _kinds(root: Node, side: Side, *, composite: bool) -> Kinds[Call, ActionText]:
    known = composite_kinds(Scope(side=side, trust=Trust(trusted=True), registry=standard_registry()))
    names = (
        {SKIP_NAME, EXECUTE_NAME} if composite else set(_type_names(root)) - known.inputs.keys() - known.matchers.keys()
    )
    vocabulary = VOCABULARIES[side]
    return Kinds(
        inputs=known.inputs,
        matchers={MATCHER: MatcherKind(ValueType.CEL, lambda data, problems: _cel(data, vocabulary, problems))},
        actions={name: _action(name) for name in names},
        keep_matching=not composite,
    )


def _type_names(node: Node) -> Iterator[str]:
    """Return the names of all messages that a file has."""
    match node:
        case Fields(entries=entries):
            if TYPE in entries and isinstance(entries[TYPE].node, Scalar):
                yield entries[TYPE].node.text.rpartition("/")[2]
            for entry in entries.values():
                yield from _type_names(entry.node)
        case Items(items=items):
            for item in items:
                yield from _type_names(item)
        case Scalar():
            return


def _action(name: str) -> ParseAction[ActionText]:
    def parse(data: bytes, problems: Problems) -> ActionText | None:
        if name == SKIP_NAME:
            return ActionText(name, "skip")
        return _execute(data, problems) if name == EXECUTE_NAME else ActionText(name, name.rpartition(".")[2])

    return parse


def _execute(data: bytes, problems: Problems) -> ActionText | None:
    try:
        message = composite_pb2.ExecuteFilterAction.FromString(data)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {EXECUTE_NAME}.")
        return None
    chain = list(message.filter_chain.typed_config) if message.HasField("filter_chain") else [message.typed_config]
    if not message.HasField("filter_chain") and not message.HasField("typed_config"):
        problems.add("FilterMissing", "The action has no filter. Set typed_config or filter_chain.")
        return None
    text = "execute " + ", ".join(each.name or each.typed_config.TypeName() for each in chain)
    if message.HasField("sample_percent"):
        with problems.at("sample_percent"):
            share = parse_runtime_fraction(message.sample_percent, problems)
        text += "" if share is None else f" for {share.per_million / MILLION:.4%} of calls"
    return ActionText(EXECUTE_NAME, text)


def _cel(data: bytes, vocabulary: Vocabulary, problems: Problems) -> "ToldExpression | None":
    """Parse an expression, also as text, because checked expressions are not written by hand."""
    try:
        expression = cel_pb2.CelMatcher.FromString(data).expr_match
    except DecodeError:
        expression = cel_pb2.CelMatcher().expr_match
    if not expression.cel_expr_string or expression.HasField("cel_expr_checked"):
        found = parse_cel_matcher(data, vocabulary, problems)
        return None if found is None else ToldExpression(found.program)
    with problems.at("expr_match", "cel_expr_string"):
        program = compile_call_expression(expression.cel_expr_string, vocabulary)
        if isinstance(program, tuple):
            for each in program:
                problems.add(f"Expression{each.reason}", each.message, Inside(each.line, each.column))
            return None
        problems.warn(
            "ExpressionUnchecked", "Data planes do not read expressions as text. Set cel_expr_checked for production."
        )
        return ToldExpression(program)


class ToldExpression(ExpressionMatcher):
    """An expression that shows the value of every part of it."""

    __slots__ = ()

    def tell(self, value: Attributes, path: Path) -> Step:
        """Say what every part of the expression is."""
        root = explain(self.program, _lookup(self, value), secret=lambda _: False).root
        return replace(_part(root, path), matched=self.matches(value))


def _lookup(matcher: ExpressionMatcher, value: Attributes) -> Callable[[str], Any]:
    steps = matcher.program.steps
    names = next((step.keys for step in steps if step.variable == HEADERS), ())
    return lambda name: value.headers(names) if name == HEADERS else value.fact(name)


def _part(part: Part, path: Path) -> Step:
    matched = None
    match part.value:
        case Shown("true" | "false" as text):
            matched, why = text == "true", ""
        case Shown(text):
            why = f"value is {text}"
        case Hidden():
            why = ""
        case Failed() as failed:
            matched, why = False, f"error: {failed.message}"
        case _:
            assert_never(part.value)
    return Step(
        path=path, text=part.text, matched=matched, why=why, below=tuple(_part(each, path) for each in part.parts)
    )


def _at(node: Node | None, path: Path) -> Node | None:
    """Return the node at an existing path; None if it is null."""
    for step in path:
        match node:
            case Fields(entries=entries) if isinstance(step, str):
                node = entries[step].node
            case Items(items=items) if isinstance(step, int):
                node = items[step]
            case _:
                return None
    return None if node is None or is_null(node) else node
