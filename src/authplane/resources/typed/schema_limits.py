"""Checks the limits of the schema."""

from collections.abc import Sized

from authplane.resources.typed.schema import (
    Base64,
    Filled,
    Given,
    Length,
    Limit,
    Matches,
    Named,
    OneNumberOf,
    OneOf,
    OneOrMany,
    Range,
    Unused,
)


def breach(limit: Limit, value: object) -> str:
    """Say what the limit expects if the value breaks it; empty if it does not."""
    match limit:
        case Range(low, high):
            return f"a number from {low} to {high}" if isinstance(value, int) and not low <= value <= high else ""
        case Length(low, high):
            too_far = isinstance(value, Sized) and not low <= len(value) <= (len(value) if high is None else high)
            return _length(low, high, "characters" if isinstance(value, str) else "items") if too_far else ""
        case OneOf(values) | OneNumberOf(values):
            return "" if value in values else f"one of {', '.join(map(repr, values))}"
        case Matches(pattern, example, what):
            return "" if isinstance(value, str) and pattern.fullmatch(value) else f"{what} such as {example!r}"
        case Base64() | Named() | Filled() | OneOrMany() | Given() | Unused():
            return ""


def _length(low: int, high: int | None, units: str) -> str:
    if high is None:
        return f"at least {low} {units if low > 1 else units[:-1]}"
    return f"at most {high} {units}" if not low else f"{low} to {high} {units}"
