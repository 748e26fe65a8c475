"""Matchers of headers, as routes and role-based access control have them.

A missing header matches nothing, whether or not the matcher is inverted; only its absence can be tested.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.matching.string_matchers import StringMatcher, matches

Lookup: TypeAlias = Callable[[str], str | None]
"""Returns the value of a header, several joined by commas, or None if it is missing."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderText:
    """The value matches."""

    name: str
    matcher: StringMatcher
    inverted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderRange:
    """The value is a decimal integer from ``start`` to just below ``end``."""

    name: str
    start: int
    end: int
    inverted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderPresent:
    """The header is present or absent."""

    name: str
    present: bool


HeaderMatcher: TypeAlias = HeaderText | HeaderRange | HeaderPresent


def matches_header(matcher: HeaderMatcher, lookup: Lookup) -> bool:
    """Tell whether the header of a matcher is as it says."""
    value = lookup(matcher.name)
    match matcher:
        case HeaderPresent(present=present):
            return (value is not None) == present
        case HeaderText(matcher=text, inverted=inverted):
            return value is not None and matches(text, value) != inverted
        case HeaderRange(inverted=inverted):
            return value is not None and _is_within(matcher, value) != inverted
        case _:
            assert_never(matcher)


def _is_within(matcher: HeaderRange, value: str) -> bool:
    return _INTEGER.fullmatch(value) is not None and matcher.start <= int(value) < matcher.end
