"""Texts for people, cut where they would be too long to read."""

from collections.abc import Sequence

_CUT = "…"


def shorten(text: str, longest: int) -> str:
    """Keep so many characters of a text; a text that is cut ends with ``…``."""
    return text if len(text) <= longest else f"{text[:longest]}{_CUT}"


def name_some(names: Sequence[object], most: int) -> str:
    """Name the first few of many: ``a, b and 3 more``."""
    shown, more = ", ".join(map(str, names[:most])), len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown
