"""Matches: the requests that a route takes."""

from enum import StrEnum
from typing import TypeAlias

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Exact:
    """Matches this path only."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class Prefix:
    """Matches every path that starts with this text."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class Segments:
    """Matches this path and every path below it: ``/a`` takes ``/a/b`` and not ``/ab``. It has no slash at its end."""

    path: str


@dataclass(frozen=True, slots=True, order=True)
class Regex:
    """Matches the paths that the pattern matches whole (RE2)."""

    path: str


PathMatch: TypeAlias = Exact | Prefix | Segments | Regex


class TextTest(StrEnum):
    """How a text is compared."""

    PRESENT = "present"
    EXACT = "exact"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    CONTAINS = "contains"
    REGEX = "regex"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class HeaderMatch:
    """Holds for requests by one of their headers."""

    name: str
    test: TextTest
    text: str = ""
    inverted: bool = False
    ignore_case: bool = False
    missing_is_empty: bool = False


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class QueryMatch:
    """Holds for requests by a parameter of their query."""

    name: str
    test: TextTest
    text: str = ""
    ignore_case: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """The requests that a route takes: all conditions apply. Headers and query are sorted."""

    path: PathMatch
    headers: tuple[HeaderMatch, ...] = ()
    query: tuple[QueryMatch, ...] = ()
