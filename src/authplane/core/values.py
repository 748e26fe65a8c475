"""Frozen values that are quick to define.

`dataclass` is that of the standard library for type checkers, and for whoever uses a value: same constructor, equality,
hash, text, patterns and errors. It differs in when work is done. The standard library writes and compiles six functions
for every class at import, used or not: 0.65 ms each, and `authplane validate` imports 550 classes. Here a frozen
class with slots gets its constructor when the first value is made; the rest is shared or needs no code of its own
(docs/decisions/0026-install-what-one-needs.md has the measurements).

Whatever else a class asks for (no slots, an order, a base that is a dataclass) is left to the standard library.
"""

import dataclasses
import inspect
from collections.abc import Callable
from operator import attrgetter
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
    given: dict[str, object] = {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if "__init__" not in written:
        given["__init__"], given["__signature__"] = _late_constructor(made), _LateSignature()
    if "__repr__" not in written:
        given["__repr__"] = _text
    if "__eq__" not in written:
        given["__eq__"] = _equality([each.name for each in fields if each.compare])
    # A class that writes its own equality has None here, as Python put it.
    if plain.__dict__.get("__hash__") is None:
        given["__hash__"] = _hash([each.name for each in fields if (each.compare if each.hash is None else each.hash)])
    if "__getstate__" not in written:
        given["__getstate__"], given["__setstate__"] = _state, _restore
    for name, method in given.items():
        setattr(made, name, method)
    result: type[_T] = made
    return result


def _late_constructor(made: Any) -> Callable[..., None]:
    def __init__(self: object, *positional: object, **named: object) -> None:  # noqa: N807 (it becomes that method)
        made.__init__ = _constructor(made)
        made.__init__(self, *positional, **named)

    return __init__


def _constructor(made: Any) -> Callable[..., None]:
    """Write the constructor of a class, as the standard library does."""
    scope: dict[str, Any] = {"put": object.__setattr__, "absent": dataclasses.MISSING}
    positional: list[str] = ["self"]
    named: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(made):
        name = field.name
        default, factory = field.default, field.default_factory
        value = name
        if factory is not dataclasses.MISSING:
            scope[f"make_{name}"] = factory
            value = f"make_{name}() if {name} is absent else {name}" if field.init else f"make_{name}()"
            written = f"{name}=absent"
        elif default is not dataclasses.MISSING:
            scope[f"default_{name}"] = default
            value = name if field.init else f"default_{name}"
            written = f"{name}=default_{name}"
        else:
            written = name
        if field.init:
            (named if field.kw_only else positional).append(written)
        elif value == name:
            continue  # `__post_init__` sets it
        body.append(f" put(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        body.append(" self.__post_init__()")
    arguments = ", ".join([*positional, *(["*", *named] if named else [])])
    exec(f"def __init__({arguments}):\n" + ("\n".join(body) or " pass"), scope)  # noqa: S102 (our own classes' names)
    constructor: Callable[..., None] = scope["__init__"]
    constructor.__qualname__ = f"{made.__qualname__}.__init__"
    return constructor


class _LateSignature:
    """The parameters of a class, for whoever looks at it: the constructor is written later."""

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


def _equality(names: list[str]) -> Callable[[Any, Any], bool]:
    key = attrgetter(*(names or ("__class__",)))
    if len(names) == 1:

        def __eq__(self: object, other: object) -> bool:  # noqa: N807 (it becomes that method)
            # As tuples: what is the same object is equal.
            return (key(self),) == (key(other),) if other.__class__ is self.__class__ else NotImplemented

    else:

        def __eq__(self: object, other: object) -> bool:  # noqa: N807 (it becomes that method)
            return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(names: list[str]) -> Callable[[Any], int]:
    if not names:
        return lambda _self: hash(())
    key = attrgetter(*names)
    return lambda self: hash(key(self))


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
