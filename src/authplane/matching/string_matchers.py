"""Matchers of text."""

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, TypeAlias, assert_never

import re2  # type: ignore[import-untyped]

from authplane.core.values import dataclass

_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True, slots=True)
class Exact:
    """The whole text is this."""

    value: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Prefix:
    """The text begins with this."""

    value: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Suffix:
    """The text ends with this."""

    value: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Contains:
    """The text has this in it."""

    value: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Regex:
    """The whole text is of this pattern of RE2. :func:`compile_regex` makes one."""

    pattern: str
    compiled: Any = field(repr=False, compare=False)


StringMatcher: TypeAlias = Exact | Prefix | Suffix | Contains | Regex
StringMatchers: TypeAlias = tuple[StringMatcher, ...]
"""A list that a text matches if it matches one of them; none means that there is no list."""


@dataclass(frozen=True, slots=True)
class NoRegex:
    """Why a pattern is not taken."""

    why: str


def compile_regex(pattern: str) -> Regex | NoRegex:
    """Make a matcher of a pattern."""
    if not pattern:
        return NoRegex("is empty")
    compiled = _compiled(pattern)
    return compiled if isinstance(compiled, NoRegex) else Regex(pattern, compiled)


def matches(matcher: StringMatcher, text: str) -> bool:
    """Tell whether a text matches. Only ASCII letters have a case."""
    match matcher:
        case Exact(value, ignore_case):
            return lower(text) == lower(value) if ignore_case else text == value
        case Prefix(value, ignore_case):
            return lower(text).startswith(lower(value)) if ignore_case else text.startswith(value)
        case Suffix(value, ignore_case):
            return lower(text).endswith(lower(value)) if ignore_case else text.endswith(value)
        case Contains(value, ignore_case):
            return lower(value) in lower(text) if ignore_case else value in text
        case Regex(_, compiled):
            return _full_match(compiled, text)
        case _:
            assert_never(matcher)


def as_test(matcher: StringMatcher) -> Callable[[str], bool]:
    """Return a function that matches a text; it is faster than :func:`matches` for repeated use."""
    match matcher:
        case Exact(value, False):
            return lambda text: text == value
        case Prefix(value, False):
            return lambda text: text.startswith(value)
        case Regex(_, compiled):
            return lambda text: _full_match(compiled, text)
        case _:
            return lambda text: matches(matcher, text)


def matches_any(matchers: StringMatchers, text: str) -> bool:
    """Tell whether a text matches one of them."""
    return any(matches(each, text) for each in matchers)


def lower(text: str) -> str:
    """Make ASCII letters small, and no others: some turn into ASCII letters when they are made small."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


def _full_match(compiled: Any, text: str) -> bool:
    try:
        return compiled.fullmatch(text) is not None
    except UnicodeEncodeError:
        # Half of a surrogate pair, of which a header that is not UTF-8 is made: RE2 matches no such thing either.
        return False


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except UnicodeEncodeError:
        return NoRegex("is not UTF-8 text")
    except re2.error as error:
        why = error.args[0]
        said = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        return NoRegex(f"is not an RE2 expression: {said}")
