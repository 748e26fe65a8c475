"""Documents with one broken field each, made from the annotations of a kind: what the reader refuses."""

import types
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from authplane.core.secret import Secret
from authplane.resources.kinds.meta import Meta
from authplane.resources.typed.schema import Given, Length, Limit, Matches, OneNumberOf, OneOf, OneOrMany, Range
from authplane.resources.typed.shapes import shape_of

Path = tuple[str | int, ...]
_DEEPEST: Final = 2**53


class Broken(NamedTuple):
    """A document, and the place of what is wrong with it."""

    document: dict[str, Any]
    path: Path
    how: str


def broken_documents(api_version: str, kind: str, made: type) -> Iterator[Broken]:
    """Return documents of a kind that break one limit each."""
    head = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "broken"}}
    for body, path, how in _objects(made):
        yield Broken({**body, **head} if how != "missing" or path[0] != "metadata" else body, path, how)


def minimal(kind: type) -> dict[str, Any]:
    """Return an object that has only its required fields."""
    shape = shape_of(kind)
    hints = get_type_hints(kind, include_extras=True)
    return {name: _sample(hints[shape.readers[name][0]]) for name in shape.required}


def _objects(kind: type) -> Iterator[tuple[dict[str, Any], Path, str]]:
    """Return broken versions of an object: its fields one by one."""
    shape = shape_of(kind)
    hints = get_type_hints(kind, include_extras=True)
    base = minimal(kind)
    yield {**base, "noSuchField": 1}, ("noSuchField",), "unknown"
    for name in shape.required:
        if name != "metadata":
            yield {key: each for key, each in base.items() if key != name}, (name,), "missing"
    for name in shape.upstream.refused:
        values = {"mirror": True, "selector": {}, "backend": {}, "backendTLS": {}, "allowedListeners": {}}
        yield {**base, name: values.get(name, {} if name == "jwtVerificationPolicy" else [])}, (name,), "refused"
    for name, (attribute, _) in shape.readers.items():
        if get_type_hints(kind)[attribute] is not Meta:
            for value, path, how in _values(hints[attribute]):
                yield {**base, name: value}, (name, *path), how


def _values(hint: object, limits: tuple[Limit, ...] = ()) -> Iterator[tuple[Any, Path, str]]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        yield from _values(arguments[0], (*limits, *arguments[1:]))
    elif origin is Union or origin is types.UnionType:
        (inner,) = (each for each in arguments if each is not type(None))
        yield from _values(inner, limits)
    elif origin is tuple:
        yield from _lists(arguments[0], limits)
    elif origin is Mapping:
        yield "text", (), "type"
        if get_origin(arguments[1]) is not Secret:
            yield {"key": {}}, ("key",), "type"
    elif isinstance(hint, type) and is_dataclass(hint):
        yield ["no mapping"], (), "type"
        yield from _objects(hint)
    elif Given() not in limits:
        for value, how in _scalars(hint, limits):
            yield value, (), how


def _lists(item: object, limits: tuple[Limit, ...]) -> Iterator[tuple[Any, Path, str]]:
    if OneOrMany() not in limits:
        yield {}, (), "type"
    for limit in limits:
        if isinstance(limit, Length) and limit.low:
            yield [], (), "short"
        if isinstance(limit, Length) and limit.high is not None:
            yield [_sample(item)] * (limit.high + 1), (), "long"
    for value, path, how in _values(item):
        yield [value], (0, *path), how


def _scalars(hint: object, limits: tuple[Limit, ...]) -> Iterator[tuple[Any, str]]:
    yield [], "type"
    for limit in limits:
        match limit:
            case OneOf():
                yield "no-such-word", "word"
            case OneNumberOf():
                yield 1, "word"
            case Matches():
                yield "; é", "pattern"
            case Range(low, high):
                yield from ((each, "range") for each in (low - 1, high + 1) if abs(each) < _DEEPEST)
            case Length(low, high) if hint is str:
                yield from ([("", "short")] if low else [])
                yield from ([("x" * (high + 1), "long")] if high is not None else [])
            case _:
                pass


def _sample(hint: object, limits: tuple[Limit, ...] = ()) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _sample(arguments[0], (*limits, *arguments[1:]))
    if origin is Union or origin is types.UnionType:
        return _sample(next(each for each in arguments if each is not type(None)), limits)
    if origin is tuple:
        fewest = next((limit.low for limit in limits if isinstance(limit, Length)), 0)
        return [_sample(arguments[0]) for _ in range(fewest)]
    if isinstance(hint, type) and is_dataclass(hint):
        return minimal(hint)
    return _scalar(hint, limits)


def _scalar(hint: object, limits: tuple[Limit, ...]) -> str | int | bool:
    for limit in limits:
        match limit:
            case OneOf(values):
                return next(filter(None, values))
            case OneNumberOf(values):
                return values[0]
            case Matches(_, example, _):
                return example.split()[0]
            case Range(low, _):
                return low
            case _:
                pass
    return "x" if hint is str else hint is bool or 1
