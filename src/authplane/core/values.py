"""Frozen values that are quick to define.

`dataclass` is that of the standard library to type checkers and to users of a value: same constructor, equality,
hash, text, patterns and errors. It differs in when work is done. The standard library writes and compiles six functions
for every class at import, used or not: 0.5 ms each, and `authplane validate` imports 500 classes. Here a frozen
class with slots gets its constructor when the first value is made, equality and hash when they are first used; the
rest is shared (docs/decisions/0026-install-what-one-needs.md has the measurements).

A class that needs anything else (no slots, an order, a base that is a dataclass) gets the standard library's. An
`InitVar` is rejected: nothing would pass it to ``__post_init__``.
"""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

_T = TypeVar("_T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 (this is what re-exports are written like)
else:

    def dataclass(cls: type[_T] | None = None, /, **options: Any) -> Any:
        """Make a class a value."""

        def define(plain: type[_T]) -> type[_T]:
            ours = options.get("frozen") and options.get("slots") and options.keys() <= {"frozen", "slots", "kw_only"}
            if ours and not hasattr(plain, "__dataclass_fields__"):
                return _define(plain, kw_only=options.get("kw_only", False))
            return dataclasses.dataclass(**options)(plain)

        return define if cls is None else define(cls)


def _define(plain: type[_T], *, kw_only: bool) -> type[_T]:
    written = plain.__dict__.keys()
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(plain)
    made.__dataclass_params__.frozen = True  # classes of the standard library that derive from it look
    fields = dataclasses.fields(made)
    if any(isinstance(each.type, dataclasses.InitVar) for each in made.__dataclass_fields__.values()):
        raise TypeError(f"{plain.__qualname__} has an InitVar, which authplane.core.values does not know")
    given: dict[str, object] = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if "__init__" not in written:
        given["__init__"] = _late(made, "__init__", partial(_constructor, made))
        given["__signature__"] = _LateSignature()
    if "__repr__" not in written:
        given["__repr__"] = _text
    if "__eq__" not in written:
        compared = [each.name for each in fields if each.compare]
        given["__eq__"] = _late(made, "__eq__", partial(_equality, compared))
    # A class that writes its own equality has None here, as Python put it.
    if plain.__dict__.get("__hash__") is None:
        hashed = [each.name for each in fields if (each.compare if each.hash is None else each.hash)]
        given["__hash__"] = _late(made, "__hash__", partial(_hash, hashed))
    if "__getstate__" not in written:
        given["__getstate__"], given["__setstate__"] = _state, _restore
    for name, method in given.items():
        setattr(made, name, method)
    result: type[_T] = made
    return result


def _late(made: Any, method: str, write: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a method that writes the real one, puts it into its place and calls it."""

    def late(self: object, *positional: object, **named: object) -> Any:
        setattr(made, method, write())
        return getattr(made, method)(self, *positional, **named)

    return late


def _constructor(made: Any) -> Callable[..., None]:
    """Write the constructor of a class, as the standard library does."""
    scope: dict[str, Any] = {"__put__": object.__setattr__, "__absent__": dataclasses.MISSING}
    positional: list[str] = ["self"]
    named: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(made):
        name = field.name
        default, factory = field.default, field.default_factory
        value = name
        if factory is not dataclasses.MISSING:
            scope[f"__make_{name}__"] = factory
            value = f"__make_{name}__() if {name} is __absent__ else {name}" if field.init else f"__make_{name}__()"
            written = f"{name}=__absent__"
        elif default is not dataclasses.MISSING:
            scope[f"__default_{name}__"] = default
            value = name if field.init else f"__default_{name}__"
            written = f"{name}=__default_{name}__"
        else:
            written = name
        if field.init:
            (named if field.kw_only else positional).append(written)
        elif value == name:
            continue  # `__post_init__` sets it
        body.append(f" __put__(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()")
    arguments = ", ".join([*positional, *(["*", *named] if named else [])])
    constructor = _write("__init__", arguments, "\n".join(body) or " pass", scope)
    constructor.__qualname__ = f"{made.__qualname__}.__init__"
    return constructor


class _LateSignature:
    """The parameters of a class, for `inspect.signature`: the constructor is written later."""

    def __get__(self, _value: object, made: Any) -> inspect.Signature:
        named, positional = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(
                each.name, named if each.kw_only else positional, default=_default(each), annotation=each.type
            )
            for each in dataclasses.fields(made)
            if each.init
        ]
        return inspect.Signature(sorted(parameters, key=lambda each: each.kind), return_annotation=None)


def _default(field: "dataclasses.Field[Any]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _equality(names: list[str]) -> Callable[..., bool]:
    ours, theirs = _tuple("self", names), _tuple("other", names)
    equal = f"{ours} == {theirs} if other.__class__ is self.__class__ else NotImplemented"
    return _write("__eq__", "self, other", f" return {equal}", {})


def _hash(names: list[str]) -> Callable[..., int]:
    return _write("__hash__", "self", f" return hash({_tuple('self', names)})", {})


def _tuple(value: str, names: list[str]) -> str:
    return f"({''.join(f'{value}.{name}, ' for name in names)})"


def _write(name: str, arguments: str, body: str, scope: dict[str, Any]) -> Callable[..., Any]:
    exec(f"def {name}({arguments}):\n{body}", scope)  # noqa: S102 (of the names in our own classes)
    written: Callable[..., Any] = scope[name]
    return written


@recursive_repr()
def _text(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(_self: object, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
