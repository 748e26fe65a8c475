"""Regular expressions as Envoy takes them: RE2, over bytes, up to a size."""

from typing import Final

import re2  # type: ignore[import-untyped]

LARGEST_PROGRAM: Final = 1000
"""The program size that Envoys accept by our bootstrap (their own default is 100); a larger one would make them reject
every route of the listener."""
_LONGEST: Final = 4096


def regex_problem(pattern: str) -> str:
    """Say why Envoy would reject a pattern; empty if it accepts it.

    An accepted pattern keeps its meaning inside a group: an include's prefix is put before it, and must apply to every
    alternative.
    """
    if len(pattern) > _LONGEST:
        return f"is longer than {_LONGEST} characters. Shorten it."
    if not (pattern.isascii() and pattern.isprintable()):
        return r"has characters that are not printable ASCII. Write them as \x{..}."
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.LATIN1
    try:
        size = re2.compile(pattern.encode(), options).programsize
        re2.compile(f"(?:{pattern})".encode(), options)
    except re2.error as error:
        return f"is not a regular expression of RE2: {error.args[0].decode(errors='replace')}. Correct it."
    if size > LARGEST_PROGRAM:
        return f"needs {size} RE2 instructions, more than the limit of {LARGEST_PROGRAM}. Simplify it."
    return ""
