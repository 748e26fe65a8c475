"""Reading what a client says when it refuses a response. The text comes from outside: it is cut and escaped."""

from collections.abc import Iterable
from typing import Final

from authplane.core.problems import printable

_MESSAGE_BYTES: Final = 4096
_NODE_BYTES: Final = 256
_SEARCHED: Final = 16_384
_INSIDE: Final = frozenset("_-/.")


def clean_message(text: str) -> str:
    """Escape what is not printable and keep at most 4 kB."""
    return _clean(text, _MESSAGE_BYTES)


def clean_node(text: str) -> str:
    """Escape what is not printable in a node id and keep at most 256 bytes."""
    return _clean(text, _NODE_BYTES)


def mentioned(names: Iterable[str], message: str) -> tuple[str, ...]:
    """Return the names that stand in the message as whole words."""
    text = message[:_SEARCHED]
    return tuple(name for name in names if name and name in text and _stands(name, text))


def _clean(text: str, limit: int) -> str:
    return printable(text[:limit]).encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _stands(name: str, text: str) -> bool:
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if not _joins(text[start - 1 : start]) and not _joins(text[end : end + 1], text[end + 1 : end + 2]):
            return True
        start = text.find(name, start + 1)
    return False


def _joins(char: str, following: str = "x") -> bool:
    """Tell whether a character beside a name makes it part of a longer one; a full stop at the end does not."""
    return char.isalnum() or (char in _INSIDE and char != "" and (char != "." or following.isalnum()))
