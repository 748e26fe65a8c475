"""NACKs: the resources that a client rejects, and its message. The message is not trusted: it is cut and escaped.

`Rollout.answered` calls `note_nack` for each NACK; afterwards the rollout stops before it removes anything.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from authplane.xds.server.client_text import clean_message
from authplane.xds.server.snapshot import same
from authplane.xds.server.subscription import Sent, Subscription

_SEARCHED: Final = 16_384
_INSIDE: Final = frozenset("_-/.")


class Nack(NamedTuple):
    """A response that a client refused."""

    names: tuple[str, ...]
    """The resources that its message names, or all of the response."""
    message: str


def note_nack(subscription: Subscription, sent: Sent, error: str) -> Nack:
    """Note which resources a client refused, and that it keeps what the response took away."""
    names = tuple(sorted(sent.names))
    named = mentioned(names, error)
    culprits = sent.updated.keys() & named or sent.updated.keys()
    held = subscription.held
    message = clean_message(error)
    subscription.refused |= {name: message for name in culprits if same(held.get(name), sent.updated[name])}
    subscription.put_back(sent.taken)
    return Nack(named or names, message)


def mentioned(names: Iterable[str], message: str) -> tuple[str, ...]:
    """Return the names that occur in the message as whole words."""
    text = message[:_SEARCHED]
    return tuple(name for name in names if name and name in text and _stands(name, text))


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
