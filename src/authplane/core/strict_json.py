"""JSON that two readers cannot read differently.

Ambiguous input is rejected: repeated members, bytes that are not UTF-8, half of a surrogate
pair, a byte order mark, numbers beyond the range of a float, and anything after the value. So is input that would cost
too much to read.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from authplane.core.values import dataclass

Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None

_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_ANY: Final = json.JSONDecoder()
_MOST_DIGITS: Final = 31

REPEATED: Final = "a member is repeated"
"""Why an object with two members of one name is refused."""


@dataclass(frozen=True, slots=True)
class NotStrict:
    """Why a text is refused, in words that quote nothing of it."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large a value may be."""

    most_bytes: int
    depth: int = 32
    members: int = 10_000
    """How many members all objects and lists may have together."""


class _RefusedError(Exception):
    """Raised inside the decoder's hooks."""


def parse_json(data: bytes, limits: Limits) -> Json | NotStrict:
    """Return the value of ``data``, or why it is refused."""
    excess = _excess(data, limits)
    if excess:
        return NotStrict(excess)
    try:
        value = _decoded(data.decode())
    except UnicodeDecodeError:
        return NotStrict("not UTF-8")
    except _RefusedError as refused:
        return NotStrict(str(refused))
    except (ValueError, RecursionError):
        return NotStrict("not JSON")
    # A search for one character is the quickest, and most texts have no escapes at all.
    if b"\\" in data and _SURROGATE.search(data) is not None and not _whole_text(value):
        return NotStrict("a string contains half of a surrogate pair")
    return value


def spelling(data: bytes, name: str) -> str | None:
    """Return how a member's value is written in an object that `parse_json` has taken; None if there is no such member.

    Numbers and texts have many spellings, and who sends one back should send the same bytes.
    """
    text = data.decode()
    at = _next(text, _next(text, 0) + 1)
    while text[at] != "}":
        found, at = _ANY.raw_decode(text, at)
        start = _next(text, _next(text, at) + 1)
        _, end = _ANY.raw_decode(text, start)
        if found == name:
            return text[start:end]
        at = _next(text, end)
        at = _next(text, at + 1) if text[at] == "," else at
    return None


def _next(text: str, at: int) -> int:
    """Return where the blanks end that begin here."""
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()


def _decoded(text: str) -> Json:
    """Decode a text; most have no blanks around their value, and then there is nothing to look for."""
    try:
        value: Json
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError:
        end = -1
    return value if end == len(text) else _DECODER.decode(text)


def _excess(data: bytes, limits: Limits) -> str:
    """Say which limit is passed, or nothing; before any of it is decoded."""
    if len(data) > limits.most_bytes:
        return f"it is larger than {limits.most_bytes} bytes"
    begun = data.count(b"{") + data.count(b"[")
    if begun <= limits.depth and begun + data.count(b",") <= limits.members:
        return ""  # as nearly always
    if _too_deep(data, limits.depth):
        return f"it is nested deeper than {limits.depth} levels"
    return f"it has more than {limits.members} members" if _members(data, limits.members) > limits.members else ""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RefusedError(REPEATED)
    return made


def _integer(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise _RefusedError("a number is too large")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _RefusedError("a number is too large")
    return value


def _constant(_: str) -> float:
    raise _RefusedError("not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
)


def _too_deep(data: bytes, most: int) -> bool:
    if data.count(b"{") + data.count(b"[") <= most:
        return False
    depth = 0
    for found in _STRUCTURE.finditer(data):
        first = found[0][:1]
        if first in b"[{":
            depth += 1
            if depth > most:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _members(data: bytes, most: int) -> int:
    """Count what separates or begins members; outside of texts, if it could be more than ``most``."""
    count = _separators(data)
    return count if count <= most else _separators(_TEXT.sub(b"", data))


def _separators(data: bytes) -> int:
    return data.count(b",") + data.count(b"{") + data.count(b"[")


def _whole_text(value: Json) -> bool:
    """Tell whether every text can be written as UTF-8."""
    waiting: list[Any] = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            try:
                each.encode()
            except UnicodeEncodeError:
                return False
        elif isinstance(each, Mapping):
            waiting += each.keys()
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return True
