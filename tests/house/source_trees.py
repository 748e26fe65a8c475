"""Modules of the source as trees: their functions, constants and imports, and what local names are assigned."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    file: str
    name: str
    tree: ast.Module
    constants: Mapping[str, ast.expr]
    functions: Mapping[str, Function]
    """Functions and methods by name; a method can be told by its first parameter."""
    imports: Mapping[str, tuple[str, str]]
    scopes: Mapping[ast.AST, Function | None]


def read_module(path: Path, source: Path, package: str) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = path.relative_to(source).as_posix()
    name = ".".join((package, *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")
    constants: dict[str, ast.expr] = {}
    imports: dict[str, tuple[str, str]] = {}
    functions: dict[str, Function] = {}
    scopes: dict[ast.AST, Function | None] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=each)], value=value):
                constants[each] = value
            case ast.AnnAssign(target=ast.Name(id=each), value=ast.expr() as value):
                constants[each] = value
            case _:
                pass
    for inner in ast.walk(tree):
        match inner:
            case ast.ImportFrom(module=str(home), names=names):
                imports |= {each.asname or each.name: (home, each.name) for each in names}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions[inner.name] = inner
                # Inner functions come later, so that the innermost is kept.
                scopes |= dict.fromkeys(ast.walk(inner), inner)
            case _:
                pass
    return Module(file, name, tree, constants, functions, imports, scopes)


def parameters(function: Function) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def arguments(function: Function, call: ast.Call) -> dict[str, ast.expr]:
    """Bind the arguments of a call to the parameters of a function, defaults included."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args)]
    bound = dict(zip(names[len(names) - len(given.defaults) :], given.defaults, strict=True))
    bound |= {
        each.arg: value for each, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None
    }
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    bound |= dict(zip(names, call.args, strict=False))
    return bound | {each.arg: each.value for each in call.keywords if each.arg is not None}


def results(function: Function) -> Iterator[ast.expr]:
    """Yield what a function returns and may be a text: one that returns a value or a message builds the value."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None and not _is_value(node.value):
            yield node.value


def _is_value(expression: ast.expr) -> bool:
    match expression:
        case ast.Call(func=ast.Name(id=name)):
            return name.lstrip("_")[:1].isupper()
        case ast.Constant(value=value):
            return not isinstance(value, str)
        case _:
            return isinstance(expression, ast.Tuple | ast.List | ast.Dict)


def assigned(scope: Function, name: str) -> Iterator[tuple[ast.expr | None, int | None]]:
    """Yield what a local variable is assigned; the second value is a position if the first is a tuple of values.

    The first is None where a run assigns it: a loop, a pattern, ``+=``.
    """
    for node in ast.walk(scope):
        match node:
            case ast.Assign(targets=[target], value=value) | ast.NamedExpr(target=target, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pass
            case _:
                if name in _bound_in_a_run(node):
                    yield None, None
                continue
        if isinstance(target, ast.Name) and target.id == name:
            yield value, None
        for position, each in enumerate(target.elts if isinstance(target, ast.Tuple) else ()):
            if isinstance(each, ast.Name) and each.id == name:
                yield value, position


def _bound_in_a_run(node: ast.AST) -> set[str | None]:
    match node:
        case ast.For(target=target) | ast.comprehension(target=target) | ast.AugAssign(target=target):
            return {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
        case ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return {name}
        case _:
            return set()
