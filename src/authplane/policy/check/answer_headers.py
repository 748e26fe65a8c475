"""Which headers a decision may send."""

import re
from typing import Final

from authplane.core.header_edits import HeaderEdits

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]{0,4094}[!-~])?)?")
_FRAMING: Final = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_MOST_HEADERS: Final = 100
_MOST_BYTES: Final = 60 * 1024


def fit_name(name: str) -> bool:
    """Tell whether ``name`` is a token, as a header's name must be."""
    return _NAME.fullmatch(name) is not None


def fit_value(value: str) -> bool:
    """Tell whether ``value`` is printable ASCII of at most 4 KiB, without blanks at its ends."""
    return _VALUE.fullmatch(value) is not None


def may_send(name: str, value: str) -> bool:
    """Tell whether a decision may carry this header: it is well formed and does not frame the message."""
    return fit_name(name) and name.lower() not in _FRAMING and fit_value(value)


def fault_in(edits: HeaderEdits) -> str | None:
    """Say why ``edits`` cannot be sent, or None.

    A proxy answers 500 to more headers than it can carry, so that is found here, where the cause can be named.
    """
    for name in (*(name for name, _ in edits.set), *edits.remove):
        if not fit_name(name) or name.lower() in _FRAMING:
            return f"the header {name!r} cannot be edited"
    for name, value in edits.set:
        if not may_send(name, value):
            return f"the value for the header {name!r} cannot be sent"
    return excess_in(edits.set)


def excess_in(headers: tuple[tuple[str, str], ...]) -> str | None:
    """Say why a proxy cannot carry all of these, or None."""
    if len(headers) > _MOST_HEADERS:
        return f"{len(headers)} headers exceed the maximum of {_MOST_HEADERS}"
    size = sum(len(name) + len(value) for name, value in headers)
    return f"{size} bytes of headers exceed the maximum of {_MOST_BYTES}" if size > _MOST_BYTES else None
