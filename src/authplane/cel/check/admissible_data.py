"""Data that may enter the engine.

The engine cuts strings and keys at a NUL character, so ``admin``, a NUL and anything would equal ``admin``; and it
blocks the interpreter. So data must be plain, free of NUL, and of bounded size. Numbers are doubles as in Envoy.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from authplane.cel.check.expression_outcome import Code, Failed
from authplane.core.values import dataclass

MOST_STRING: Final = 32_768
"""The bytes of one string."""
MOST_DATA: Final = 262_144
"""The bytes of all that one evaluation reads; a value counts 8 besides its text."""
MOST_ELEMENTS: Final = 1_000
"""The elements of one list, and the members of one object inside of another value."""
MOST_DEPTH: Final = 32

_PER_VALUE: Final = 8
_LARGEST_INTEGER: Final = 2**63


@dataclass(frozen=True, slots=True)
class Admitted:
    """A value that was checked, as plain Python data. Do not change it."""

    value: Any
    size: int


class _RefusedError(Exception):
    """Raised deep inside a value."""

    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code = code


def admit(value: object) -> Admitted | Failed:
    """Check a value and everything in it; mappings become dicts, sequences lists, and integers doubles.

    Worth keeping: a token's claims are admitted once, not at every request.
    """
    # Most values are short plain strings.
    if type(value) is str and value.isascii() and len(value) <= MOST_STRING:
        return Failed(Code.NUL_IN_INPUT) if "\0" in value else Admitted(value, len(value) + _PER_VALUE)
    copier = _Copier()
    try:
        plain = copier.copy(value, 0)
    except _RefusedError as refused:
        return Failed(refused.code)
    return Admitted(plain, copier.size)


def admit_texts(texts: dict[str, str]) -> Admitted | Failed:
    """Check texts by names that are known to be right, and keep the dict itself."""
    size = _PER_VALUE
    for text in texts.values():
        if type(text) is not str or not text.isascii() or len(text) > MOST_STRING or "\0" in text:
            return admit(texts)
        size += len(text) + 2 * _PER_VALUE
    return Admitted(texts, size) if size <= MOST_DATA else Failed(Code.INPUT_TOO_LARGE)


class _Copier:
    """Copies one value, and stops as soon as it is too large."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0

    def copy(self, value: object, depth: int) -> Any:
        match value:
            case str():
                return self._text(value)
            case bool() | None:
                self._grow(_PER_VALUE)
                return value
            case int() | float():
                self._grow(_PER_VALUE)
                return _number(value)
            case Mapping() | list() | tuple():
                return self._collection(value, depth + 1)
            case datetime() if depth == 0 and value.tzinfo is not None:
                self._grow(_PER_VALUE)
                return value
            case _:
                raise _RefusedError(Code.WRONG_TYPE)

    def _collection(self, value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], depth: int) -> Any:
        if depth > MOST_DEPTH:
            raise _RefusedError(Code.INPUT_TOO_LARGE)
        if len(value) > MOST_ELEMENTS and not (depth == 1 and isinstance(value, Mapping)):
            raise _RefusedError(Code.INPUT_TOO_LARGE)
        self._grow(_PER_VALUE)
        if isinstance(value, Mapping):
            return {self._key(key): self.copy(each, depth) for key, each in value.items()}
        return [self.copy(each, depth) for each in value]

    def _key(self, key: object) -> str:
        if not isinstance(key, str):
            raise _RefusedError(Code.WRONG_TYPE)
        return self._text(key)

    def _text(self, text: str) -> str:
        if "\0" in text:
            raise _RefusedError(Code.NUL_IN_INPUT)
        length = len(text)
        if length <= MOST_STRING and not text.isascii():
            try:
                length = len(text.encode())
            except UnicodeEncodeError:
                raise _RefusedError(Code.NOT_UNICODE) from None
        if length > MOST_STRING:
            raise _RefusedError(Code.STRING_TOO_LONG)
        self._grow(length + _PER_VALUE)
        # A subclass of str would carry its own methods into the engine.
        return text if type(text) is str else str.__str__(text)

    def _grow(self, size: int) -> None:
        self.size += size
        if self.size > MOST_DATA:
            raise _RefusedError(Code.INPUT_TOO_LARGE)


def _number(value: float) -> float:
    # An integer has its own limit: a double would take it with any rounding.
    if isinstance(value, int) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        raise _RefusedError(Code.NUMBER_OUT_OF_RANGE)
    number = float(value)
    if not math.isfinite(number):
        raise _RefusedError(Code.NUMBER_OUT_OF_RANGE)
    return number
