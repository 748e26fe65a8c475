"""Limits of what a request may subscribe to."""

from typing import Final

from authplane.xds.server.client_text import clean_node
from authplane.xds.server.served_types import TypeUrl

MOST_NAMES: Final = 100_000
"""Resource names that one client may subscribe to, for each type."""

_KNOWN: Final = frozenset(TypeUrl)


def refusal(type_url: str, names: int) -> str | None:
    """Say why a request for so many names of a type is not served, or None if it is."""
    if type_url not in _KNOWN:
        return f"type URL '{clean_node(type_url)}' is not supported"
    if names > MOST_NAMES:
        return f"{names} resource names exceed the limit of {MOST_NAMES}"
    return None
