"""The ways in which a module can be changed, one at a time."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

_FLIPPED: Final = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_EDGES: Final = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_EXCHANGED: Final = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one module."""

    path: str
    line: int
    kind: str
    before: str
    after: str
    source: str
    """The whole module with the change."""
    imported: bool = False
    """The line runs when the module is imported, not when something of it is called."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {self.before} → {self.after}"


def mutants_of(path: str, text: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of its lines.

    Docstrings, annotations, sentences for people, what is raised and what is only for type checkers stay as they are.
    """
    tree = ast.parse(text)
    skipped = set(_skipped(tree))
    called = {id(each) for node in ast.walk(tree) for part in _called(node) for each in ast.walk(part)}
    for node in ast.walk(tree):
        if id(node) in skipped or not hasattr(node, "lineno"):
            continue
        for kind, changed in _changes(node):
            yield replace(_mutant(path, text, node, kind, changed), imported=id(node) not in called)


def _called(node: ast.AST) -> list[ast.stmt] | list[ast.expr]:
    """Return what runs only when a function is called."""
    match node:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            return body
        case ast.Lambda(body=body):
            return [body]
        case _:
            return []


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    yield from _changed_conditions(node)
    yield from _changed_values(node)


def _changed_conditions(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators):
            yield "flipped comparison", ast.Compare(left, [_FLIPPED[type(op)]()], comparators)
            if type(op) in _EDGES:
                yield "moved boundary", ast.Compare(left, [_EDGES[type(op)]()], comparators)
        case ast.BoolOp(op=op, values=values):
            yield "and for or", ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "dropped not", operand
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "exchanged branches", ast.IfExp(test, orelse, body)
        case _:
            pass


def _changed_values(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _EXCHANGED and not _is_type(node):
            yield "exchanged operator", ast.BinOp(left, _EXCHANGED[type(op)](), right)
        case ast.Constant(value=bool() as value):
            yield "exchanged truth value", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "changed number", ast.Constant(value + 1)
        case ast.Constant(value=str() | bytes() as value) if value and not _is_sentence(value):
            yield "emptied text", ast.Constant(type(value)())
        case ast.Tuple(elts=elts, ctx=ast.Load()):
            yield from (("dropped element", ast.Tuple(rest, ast.Load())) for rest in _without_one(elts))
        case ast.List(elts=elts, ctx=ast.Load()):
            yield from (("dropped element", ast.List(rest, ast.Load())) for rest in _without_one(elts))
        case ast.Set(elts=elts):
            yield from (("dropped element", ast.Set(rest)) for rest in _without_one(elts))
        case ast.Dict(keys=keys, values=values) if len(keys) > 1:
            for index in range(len(keys)):
                yield "dropped entry", ast.Dict(keys[:index] + keys[index + 1 :], values[:index] + values[index + 1 :])
        case _:
            pass


def _without_one(elts: list[ast.expr]) -> Iterator[list[ast.expr]]:
    if len(elts) > 1:
        yield from (elts[:index] + elts[index + 1 :] for index in range(len(elts)))


def _mutant(path: str, text: str, node: ast.AST, kind: str, changed: ast.expr) -> Mutant:
    lines = text.splitlines(keepends=True)
    first, last = node.lineno, node.end_lineno  # type: ignore[attr-defined]  # it is an expression
    start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]  # as above
    head = "".join(lines[: first - 1]).encode() + lines[first - 1].encode()[:start]
    tail = lines[last - 1].encode()[end:] + "".join(lines[last:]).encode()
    before = text.encode()[len(head) : len(text.encode()) - len(tail)].decode()
    after = ast.unparse(ast.fix_missing_locations(changed))
    source = (head + f"({after})".encode() + tail).decode()
    return Mutant(path=path, line=first, kind=kind, before=_short(before), after=_short(after), source=source)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else f"{flat[:77]}…"


def _skipped(tree: ast.Module) -> Iterator[int]:
    """Yield the nodes that are left as they are, by identity."""
    for node in ast.walk(tree):
        for part in _left_alone(node):
            yield from map(id, ast.walk(part))


def _left_alone(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what of a node no test could notice, or what has no place of its own in the text."""
    match node:
        case _ if _is_for_types(node):
            yield node
        case ast.Expr(value=ast.Constant(value=str())) | ast.Raise() | ast.JoinedStr():
            yield node
        case ast.Subscript(slice=ast.Slice()) | ast.Assign(targets=[ast.Name(id="__slots__" | "__all__")]):
            yield node
        case ast.keyword(arg="repr" | "strict"):
            # How values are shown, and a check that lists are as long as they are known to be.
            yield node
        case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
            yield annotation
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from node.decorator_list
            if node.returns is not None:
                yield node.returns
        case ast.ClassDef(decorator_list=decorators, bases=bases, keywords=keywords):
            yield from (*decorators, *bases, *keywords)
        case ast.match_case(pattern=pattern):
            yield pattern
        case _:
            pass


def _is_for_types(node: ast.AST) -> bool:
    """Tell whether a node names a type, or a variable for types."""
    match node:
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")) | ast.Subscript(value=ast.Name(id="tuple" | "dict")):
            return True
        case ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec")):
            return True
        case _:
            return False


def _is_sentence(value: str | bytes) -> bool:
    """Tell whether a text is for people: what decides has no blanks, or one."""
    return len(value.split()) > 2


def _is_type(node: ast.BinOp) -> bool:
    """Tell whether ``|`` makes a union of types, as far as that can be seen."""
    return (
        isinstance(node.op, ast.BitOr)
        and all(
            isinstance(each, ast.Name | ast.Attribute | ast.Subscript | ast.BinOp) or _is_none(each)
            for each in (node.left, node.right)
        )
        and ast.unparse(node)[:1].isupper()
    )


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
