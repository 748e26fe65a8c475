"""Patterns of ``matches()``: RE2 takes linear time, which is still long for some patterns."""

from typing import Final

import re2  # type: ignore[import-untyped]

LONGEST: Final = 256
"""In characters."""
LARGEST: Final = 2_000
"""In instructions of RE2: at worst it visits all of them for each byte."""


def pattern_problem(pattern: str) -> str:
    """Say why a pattern is not taken, or nothing."""
    if len(pattern) > LONGEST:
        return f"is longer than {LONGEST} characters. Shorten it."
    size = _size(pattern)
    if isinstance(size, str):
        return f"is not a valid RE2 regular expression: {size}. Correct it."
    if size > LARGEST:
        return f"is too large: it compiles to {size:,} RE2 instructions; the maximum is {LARGEST:,}. Simplify it."
    return ""


def pattern_size(pattern: str) -> int:
    """Return of how many instructions a pattern is; the most, if it is not taken."""
    size = _size(pattern) if len(pattern) <= LONGEST else LARGEST
    return LARGEST if isinstance(size, str) else size


def _size(pattern: str) -> int | str:
    """Return the size of a pattern, or what is wrong with it."""
    options = re2.Options()
    options.log_errors = False
    try:
        size: int = re2.compile(pattern, options).programsize
    except re2.error as error:
        why = error.args[0]
        return why.decode(errors="replace") if isinstance(why, bytes) else str(why)
    return size
