"""Finds every message that the source builds for a user, with the texts that it can become.

`found_messages` reads the source as a tree: it looks for calls that build a problem (`CONSTRUCTORS`, classes with a
field ``message``, exceptions whose text a user reads), and resolves the message: constants, f-strings, concatenations,
conditions, names of constants and local variables, functions that return a text, and functions that pass a parameter
on to another constructor. A part that cannot be resolved is `UNKNOWN`.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, islice, product
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

UNKNOWN: Final = "\N{WHITE SQUARE}"
"""A part that only a run can tell, such as a value of a document."""
PASSED_ON: Final = "\N{BLACK SQUARE}"
"""The whole message of another problem, which is checked where it is built."""

_METHODS: Final = {"add": 1, "warn": 1}
"""Methods of `Problems`, called with two arguments: which of them is the message."""
_OWNERS: Final = re.compile(r"(?:problems|report)$")
_LOGS: Final = re.compile(r"log(?:\(\))?$")
_CLICK: Final = {"BadParameter", "ClickException", "UsageError", "BadArgumentUsage", "BadOptionUsage"}
_PROGRAMMERS: Final = {"ValueError", "TypeError"}
"""A user reads these where Python code of the user calls authplane: in the room ``grpc``."""
_MOST: Final = 60
"""How many texts of one message are looked at."""
_DEPTH: Final = 6

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_PARAMETER: Final = re.compile("\N{BLACK DIAMOND}(\\w+)\N{BLACK DIAMOND}")

_ENDS_WITH_PARAMETER: Final = re.compile(_PARAMETER.pattern + r"\W*$")


class Message(NamedTuple):
    """One text that a constructor can be called with."""

    file: str
    line: int
    function: str
    text: str


class _Module(NamedTuple):
    file: str
    name: str
    tree: ast.Module
    constants: Mapping[str, ast.expr]
    functions: Mapping[str, _Function]
    """Functions and methods by name; a method can be told by its first parameter."""
    imports: Mapping[str, tuple[str, str]]
    scopes: Mapping[ast.AST, _Function | None]


class _Place(NamedTuple):
    module: _Module
    scope: _Function | None
    """The innermost function around an expression."""


class _Call(NamedTuple):
    place: _Place
    call: ast.Call


def found_messages(source: Path, ignored: Collection[str] = ()) -> Iterator[Message]:
    """Yield every message below a folder such as ``src/authplane``, in the order of files and lines.

    Classes that are ``ignored`` have a field ``message`` that is not a problem, such as ``xds.server.nacks.Nack``.
    """
    return _House(source, ignored).messages()


class _House:
    def __init__(self, source: Path, ignored: Collection[str]) -> None:
        package = source.name
        self._modules = {
            each.name: each
            for each in (_read(path, source, package) for path in sorted(source.rglob("*.py")))
        }  # fmt: skip
        self._classes = {
            each: position
            for each, position in _classes_with_messages(self._modules.values()).items()
            if each.removeprefix(f"{package}.") not in ignored
        }
        methods: dict[str, list[tuple[_Module, _Function]]] = {}
        for module in self._modules.values():
            for name, function in module.functions.items():
                methods.setdefault(name, []).append((module, function))
        self._unique = {name: found[0] for name, found in methods.items() if len(found) == 1}

    def messages(self) -> Iterator[Message]:
        calls = [
            _Call(_Place(module, module.scopes.get(node)), node)
            for module in self._modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call)
        ]
        found: list[Message] = []
        pending = [(call, text) for call in calls for text in self._direct(call)]
        reached: set[_Function] = set()
        while pending:
            templates: dict[_Function, set[str]] = {}
            lines: dict[_Function, Message] = {}
            for call, text in pending:
                scope = call.place.scope
                plain = Message(
                    call.place.module.file,
                    call.call.lineno,
                    scope.name if scope is not None else "",
                    _PARAMETER.sub(UNKNOWN, text),
                )
                if scope is not None and scope not in reached and _ENDS_WITH_PARAMETER.search(text):
                    templates.setdefault(scope, set()).add(text)
                    lines[scope] = plain
                else:
                    found.append(plain)
            reached |= templates.keys()
            called = [(call, function) for call in calls for _, function in self._called(call) if function in templates]
            uncalled = lines.keys() - {function for _, function in called}
            found += [lines[function] for function in uncalled]
            pending = [
                (call, text)
                for call, function in called
                for template in templates[function]
                for text in self._filled(template, function, call, 0)
            ]
        return iter(sorted(set(found)))

    def _direct(self, call: _Call) -> Iterator[str]:
        expression = self._message_of(call)
        return iter(()) if expression is None else iter(self._texts(expression, call.place))

    def _message_of(self, call: _Call) -> ast.expr | None:
        """Return the argument of a constructor that is the message."""
        node, given = call.call, call.call.args
        match node.func:
            case ast.Attribute(value=owner, attr=name) if name in _METHODS and len(given) == 2:
                return given[_METHODS[name]] if _OWNERS.search(ast.unparse(owner)) else None
            case ast.Attribute(attr=name) if name in _CLICK and given:
                return given[0]
            case ast.Name(id=name) if name in _CLICK and given:
                return given[0]
            case ast.Name(id=name) if name in _PROGRAMMERS and given and call.place.module.file.startswith("grpc/"):
                return given[0]
            case ast.Name(id=name) if (defined := _definition(name, call.place.module)) in self._classes:
                position = self._classes[defined]
                named = [each.value for each in node.keywords if each.arg == "message"]
                return named[0] if named else given[position] if len(given) > position else None
        return None

    def _called(self, call: _Call) -> Iterator[tuple[_Module, _Function]]:
        module = call.place.module
        match call.call.func:
            case ast.Name(id=name) if name in module.functions:
                yield module, module.functions[name]
            case ast.Name(id=name) if name in module.imports:
                home, original = module.imports[name]
                if home in self._modules and original in self._modules[home].functions:
                    yield self._modules[home], self._modules[home].functions[original]
            case ast.Attribute(value=owner, attr=name) if name not in _METHODS:
                if _LOGS.search(ast.unparse(owner)):
                    return
                if name in module.functions:
                    yield module, module.functions[name]
                elif name in self._unique:
                    yield self._unique[name]
            case _:
                pass

    def _filled(self, template: str, function: _Function, call: _Call, depth: int) -> Iterator[str]:
        """Put the arguments of a call into a text that a function makes of its parameters."""
        names = sorted(set(_PARAMETER.findall(template)))
        given = _arguments(function, call.call)
        choices = [self._texts(given[name], call.place, depth + 1) if name in given else (UNKNOWN,) for name in names]
        for texts in _some(product(*choices)):
            bound = dict(zip(names, texts, strict=True))
            pieces = _PARAMETER.split(template)
            yield "".join(bound[piece] if at % 2 else piece for at, piece in enumerate(pieces))

    def _texts(self, expression: ast.expr, place: _Place, depth: int = 0) -> tuple[str, ...]:
        found = self._each_text(expression, place, depth) if depth <= _DEPTH else (UNKNOWN,)
        return tuple(dict.fromkeys(_some(found)))

    def _each_text(self, expression: ast.expr, place: _Place, depth: int) -> Iterator[str]:
        match expression:
            case ast.Constant(value=str(text)):
                yield text
            case ast.Constant(value=None):
                return
            case ast.Attribute(attr="message"):
                yield PASSED_ON
            case ast.Name(id=name):
                yield from self._named(name, place, depth)
            case ast.Subscript(value=table):
                yield from self._entries(table, place.module, depth)
            case ast.Call(func=ast.Name(id="printable"), args=[only]):
                yield from self._texts(only, place, depth)
            case ast.Call():
                yield from self._returned(_Call(place, expression), depth)
            case _:
                yield from self._composed(expression, place, depth)

    def _composed(self, expression: ast.expr, place: _Place, depth: int) -> Iterator[str]:
        def texts(part: ast.expr) -> tuple[str, ...]:
            return self._texts(part, place, depth)

        match expression:
            case ast.JoinedStr(values=values):
                yield from map("".join, _some(product(*map(texts, values))))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                yield from map("".join, _some(product(texts(left), texts(right))))
            case ast.IfExp(body=body, orelse=other):
                yield from chain(texts(body), texts(other))
            case ast.BoolOp(values=values):
                yield from chain.from_iterable(map(texts, values))
            case ast.FormattedValue(value=value, conversion=-1) | ast.NamedExpr(value=value) | ast.Await(value=value):
                yield from texts(value)
            case _:
                yield UNKNOWN

    def _entries(self, table: ast.expr, module: _Module, depth: int) -> Iterator[str]:
        """Yield the texts that a constant mapping has as values."""
        match table:
            case ast.Name(id=name) if isinstance(found := module.constants.get(name), ast.Dict):
                for each in found.values:
                    yield from self._texts(each, _Place(module, None), depth + 1)
            case _:
                yield UNKNOWN

    def _named(self, name: str, place: _Place, depth: int) -> Iterator[str]:
        module, scope = place
        if scope is not None:
            assigned = list(_assigned(scope, name))
            for value, position in assigned:
                yield from self._element(value, position, place, depth + 1)
            if name in _parameters(scope):
                yield f"\N{BLACK DIAMOND}{name}\N{BLACK DIAMOND}"
            if assigned or name in _parameters(scope):
                return
        if name in module.constants:
            yield from self._texts(module.constants[name], _Place(module, None), depth + 1)
        elif name in module.imports and module.imports[name][0] in self._modules:
            home, original = module.imports[name]
            yield from self._named(original, _Place(self._modules[home], None), depth + 1)
        else:
            yield UNKNOWN

    def _element(self, value: ast.expr | None, position: int | None, place: _Place, depth: int) -> Iterator[str]:
        """Yield the texts of a value, or of one element of a tuple."""
        match value:
            case None:
                yield UNKNOWN
            case _ if position is None:
                yield from self._texts(value, place, depth)
            case ast.Tuple(elts=elements) if position < len(elements):
                yield from self._texts(elements[position], place, depth)
            case ast.IfExp(body=body, orelse=other):
                yield from self._element(body, position, place, depth)
                yield from self._element(other, position, place, depth)
            case _:
                yield UNKNOWN

    def _returned(self, call: _Call, depth: int) -> Iterator[str]:
        known = False
        for module, function in self._called(call):
            for value in _results(function):
                for template in self._texts(value, _Place(module, function), depth + 1):
                    known = True
                    yield from self._filled(template, function, call, depth)
        if not known:
            yield UNKNOWN


def _read(path: Path, source: Path, package: str) -> _Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = path.relative_to(source).as_posix()
    name = ".".join((package, *path.relative_to(source).with_suffix("").parts)).removesuffix(".__init__")
    constants: dict[str, ast.expr] = {}
    imports: dict[str, tuple[str, str]] = {}
    functions: dict[str, _Function] = {}
    scopes: dict[ast.AST, _Function | None] = {}
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
    return _Module(file, name, tree, constants, functions, imports, scopes)


def _classes_with_messages(modules: Iterable[_Module]) -> dict[str, int]:
    """Return classes that carry a message, and the position of it among the arguments."""
    found: dict[str, int] = {}
    bases: dict[str, list[str]] = {}
    homes: dict[str, str] = {}
    for module, node in ((each, node) for each in modules for node in ast.walk(each.tree)):
        if not isinstance(node, ast.ClassDef):
            continue
        bases[node.name] = [
            each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in node.bases
        ]
        fields = [
            each.target.id
            for each in node.body
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]
        if "message" in fields:
            found[f"{module.name}.{node.name}"] = fields.index("message")
        homes[node.name] = f"{module.name}.{node.name}"

    def is_exception(name: str) -> bool:
        return name.endswith(("Error", "Exception")) and (name not in bases or any(map(is_exception, bases[name])))

    return found | {homes[name]: 0 for name in bases if not name.startswith("_") and is_exception(name)}


def _definition(name: str, module: _Module) -> str:
    """Return the full name of a class by its name in a module."""
    return ".".join(module.imports.get(name, (module.name, name)))


def _parameters(function: _Function) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _arguments(function: _Function, call: ast.Call) -> dict[str, ast.expr]:
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


def _results(function: _Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value


def _assigned(scope: _Function, name: str) -> Iterator[tuple[ast.expr | None, int | None]]:
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


def _some(found: Iterable[T]) -> Iterator[T]:
    return islice(found, _MOST)
