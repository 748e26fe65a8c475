"""Texts that clients send, cut and escaped before they are shown."""

from typing import Final

from authplane.core.problems import printable

_MESSAGE_BYTES: Final = 4096
_NODE_BYTES: Final = 256


def clean_message(text: str) -> str:
    """Escape what is not printable and keep at most 4 kB."""
    return _clean(text, _MESSAGE_BYTES)


def clean_node(text: str) -> str:
    """Escape what is not printable in a node id and keep at most 256 bytes."""
    return _clean(text, _NODE_BYTES)


def _clean(text: str, limit: int) -> str:
    return printable(text[:limit]).encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
