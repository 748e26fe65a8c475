"""Finds every message that the source builds for a user, with the texts that it can become.

`found_messages` reads the source as a tree: it looks for calls that build a problem (`CONSTRUCTORS`, classes with a
field ``message``, exceptions whose text a user reads), and resolves the message: constants, f-strings, concatenations,
conditions, names of constants and local variables, functions that return a text, and functions that pass a parameter
on to another constructor. A part that cannot be resolved is `UNKNOWN`.
"""

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, islice, product
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from tests.house.source_trees import Function, Module, arguments, assigned, parameters, read_module, results

T = TypeVar("T")

UNKNOWN: Final = "\N{WHITE SQUARE}"
"""A part that only a run can tell, such as a value of a document."""
PASSED_ON: Final = "\N{BLACK SQUARE}"
"""The whole message of another problem, which is checked where it is built."""

_METHODS: Final = {"add": 1, "warn": 1}
"""Methods of `Problems`, called with two arguments: which of them is the message."""
_OWNERS: Final = re.compile(r"(?:problems|report|reports\.of\(.*\))$")
_LOGS: Final = re.compile(r"log(?:\(\))?$")
_CLICK: Final = {"BadParameter", "ClickException", "UsageError", "BadArgumentUsage", "BadOptionUsage"}
_PROGRAMMERS: Final = {"ValueError", "TypeError"}
"""A user reads these where Python code of the user calls authplane: in the room ``grpc``."""
_MOST: Final = 60
"""How many texts of one message are looked at."""
_DEPTH: Final = 6

_PARAMETER: Final = re.compile("\N{BLACK DIAMOND}(\\w+)\N{BLACK DIAMOND}")

_ENDS_WITH_PARAMETER: Final = re.compile(_PARAMETER.pattern + r"\W*$")


class Message(NamedTuple):
    """One text that a constructor can be called with."""

    file: str
    line: int
    function: str
    text: str


class _Place(NamedTuple):
    module: Module
    scope: Function | None
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
            for each in (read_module(path, source, package) for path in sorted(source.rglob("*.py")))
        }  # fmt: skip
        self._classes = {
            each: position
            for each, position in _classes_with_messages(self._modules.values()).items()
            if each.removeprefix(f"{package}.") not in ignored
        }
        methods: dict[str, list[tuple[Module, Function]]] = {}
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
        reached: set[Function] = set()
        while pending:
            templates: dict[Function, set[str]] = {}
            lines: dict[Function, Message] = {}
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

    def _called(self, call: _Call) -> Iterator[tuple[Module, Function]]:
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

    def _filled(self, template: str, function: Function, call: _Call, depth: int) -> Iterator[str]:
        """Put the arguments of a call into a text that a function makes of its parameters."""
        names = sorted(set(_PARAMETER.findall(template)))
        given = arguments(function, call.call)
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
            case (
                ast.Subscript(value=whole, slice=ast.Slice())
                | ast.Call(func=ast.Attribute(value=whole, attr="removeprefix" | "rstrip"))
            ):
                yield from self._texts(whole, place, depth)
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
            case ast.BoolOp(values=[*values, last]):
                # Of "this or that", an empty text is never the result, unless it is the last.
                yield from (each for value in values for each in texts(value) if each)
                yield from texts(last)
            case ast.FormattedValue(value=value, conversion=-1) | ast.NamedExpr(value=value) | ast.Await(value=value):
                yield from texts(value)
            case _:
                yield UNKNOWN

    def _entries(self, table: ast.expr, module: Module, depth: int) -> Iterator[str]:
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
            given = list(assigned(scope, name))
            for value, position in given:
                yield from self._element(value, position, place, depth + 1)
            if name in parameters(scope):
                yield f"\N{BLACK DIAMOND}{name}\N{BLACK DIAMOND}"
            if given or name in parameters(scope):
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
            for value in results(function):
                for template in self._texts(value, _Place(module, function), depth + 1):
                    known = True
                    yield from self._filled(template, function, call, depth)
        if not known:
            yield UNKNOWN


def _classes_with_messages(modules: Iterable[Module]) -> dict[str, int]:
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


def _definition(name: str, module: Module) -> str:
    """Return the full name of a class by its name in a module."""
    return ".".join(module.imports.get(name, (module.name, name)))


def _some(found: Iterable[T]) -> Iterator[T]:
    return islice(found, _MOST)
