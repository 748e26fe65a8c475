"""Tests of requests by Envoy's own matchers: much cheaper than an expression, and they never fail.

A missing value matches no test, so a check is false where an expression would fail. If a header occurs several times,
some releases test each value and others all of them joined: checks are only for headers that Envoy itself makes
unique, and for whether a header exists at all.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from authplane.core.values import dataclass

# --- Tests of a value


@dataclass(frozen=True, slots=True)
class Equals:
    """A text is this one."""

    text: str
    ignore_case: bool = False


@dataclass(frozen=True, slots=True)
class Begins:
    """A text begins with this one, which is not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Contains:
    """A text has this one in it, which is not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Fits:
    """A text as a whole fits a regular expression."""

    pattern: str


TextTest: TypeAlias = Equals | Begins | Contains | Fits


@dataclass(frozen=True, slots=True)
class Present:
    """There is a value, whatever it is."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """A text is a whole number, not below zero and up to this one."""

    number: int


@dataclass(frozen=True, slots=True)
class Lists:
    """A value is a list that has this text in it."""

    text: str


@dataclass(frozen=True, slots=True)
class Number:
    """A value is this number."""

    value: float


@dataclass(frozen=True, slots=True)
class Between:
    """A value is a number, not below the first and below the second."""

    first: float
    second: float


ValueTest: TypeAlias = TextTest | Present | Lists | Number | Between


# --- Checks of a request


@dataclass(frozen=True, slots=True)
class Header:
    """A header passes a test."""

    name: str
    test: TextTest | Present | AtMost


@dataclass(frozen=True, slots=True)
class Path:
    """The path, without query and fragment, passes a test."""

    test: TextTest


@dataclass(frozen=True, slots=True)
class Port:
    """The request came to this port."""

    number: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a filter has found passes one of these tests, of which there is one at least: see `found`."""

    keys: tuple[str, ...]
    """The name under which the filter keeps what it finds, and the way from there."""
    tests: tuple[ValueTest, ...]


@dataclass(frozen=True, slots=True)
class Every:
    """True if all of these are."""

    checks: tuple["Check", ...] = ()


@dataclass(frozen=True, slots=True)
class Some:
    """True if one of these is."""

    checks: tuple["Check", ...] = ()


@dataclass(frozen=True, slots=True)
class Not:
    """True if the other one is not."""

    check: "Check"


Check: TypeAlias = Header | Path | Port | Metadata | Every | Some | Not

ALWAYS: Final = Every()
PRESENT: Final = Present()


def every(checks: Iterable[Check]) -> Check:
    """Return a check that is true if all of these are, in this order."""
    parts = tuple(part for each in checks for part in (each.checks if isinstance(each, Every) else (each,)))
    return parts[0] if len(parts) == 1 else Every(parts)


def some(checks: Iterable[Check]) -> Check:
    """Return a check that is true if one of these is; they are tried in this order."""
    parts = tuple(checks)
    return parts[0] if len(parts) == 1 else Some(parts)


def found(keys: tuple[str, ...], tests: Iterable[ValueTest]) -> Check:
    """Return a check: a filter's metadata passes one of these tests; without any it is never true."""
    wanted = tuple(tests)
    return Metadata(keys, wanted) if wanted else Some()


def equals_one(keys: tuple[str, ...], texts: Iterable[str]) -> Check:
    """Return a check: a filter's metadata is one of these texts."""
    return found(keys, map(Equals, sorted(texts)))
