"""Times and durations that Envoy reads and adds as the engine does.

The engine refuses times before year 1 and after year 9999, and what has no 64 bits of nanoseconds. Envoy takes them,
and knows parts of a nanosecond. So times and durations are native where they are written in the expression, and are
neither far away nor the result of another calculation; `request.time` is now.
"""

import re
from typing import Final

from authplane.cel.syntax.tree import Call, Const, Node, path_of, walk

MADE: Final = "converts a value to a time or a duration, for which Envoy accepts values that the policy server rejects"
FAR: Final = "uses a time or a duration outside the range in which Envoy computes the same result"
CALCULATED: Final = "calculates with times in more than one step"

_TIME: Final = re.compile(r"(?:19|20)[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:Z|[+-][0-9]{2}:[0-9]{2})")
"""Of these centuries: no two of them are further apart than a duration can be."""
_LATEST: Final = 4_102_444_800
"""The end of 2099, in seconds; numbers begin with 1970."""
_DURATION: Final = re.compile(r"-?(?:[0-9]{1,6}(?:h|m|s|ms|us|ns))+")
_PART: Final = re.compile(r"([0-9]+)([a-z]+)")
_SECONDS: Final = {"h": 3_600, "m": 60}
"""Of the units of a duration; all others have one at most."""
_LONGEST: Final = 876_000 * 3_600
"""A hundred years."""
_OVERLOADS: Final = frozenset({
    "add_timestamp_duration", "add_duration_timestamp", "add_duration_duration",
    "subtract_timestamp_timestamp", "subtract_timestamp_duration", "subtract_duration_duration",
})  # fmt: skip
_MAKERS: Final = frozenset({"timestamp", "duration"})
_NOW: Final = ("request", "time")


def fault_in_time(node: Call, overloads: frozenset[str]) -> str:
    """Say why Envoy may come to another time than the engine, or nothing."""
    match node:
        case Call(function="timestamp" | "duration", args=(Const(value=value),)):
            return "" if _is_near(node.function, value) else FAR
        case Call(function="timestamp" | "duration"):
            return MADE
        case Call(function="_+_" | "_-_", args=args) if overloads & _OVERLOADS:
            return CALCULATED if any(_has_time(each) and not _is_written(each) for each in args) else ""
        case _:
            return ""


def _is_near(function: str, value: object) -> bool:
    if function == "timestamp":
        if isinstance(value, str):
            return _TIME.fullmatch(value) is not None
        return isinstance(value, int) and 0 <= value < _LATEST
    if not isinstance(value, str) or _DURATION.fullmatch(value) is None:
        return False
    return sum(int(number) * _SECONDS.get(unit, 1) for number, unit in _PART.findall(value)) <= _LONGEST


def _has_time(node: Node) -> bool:
    """Tell whether a time or a duration can come of a node: claims and arguments have none."""
    return any((isinstance(each, Call) and each.function in _MAKERS) or path_of(each) == _NOW for each in walk(node))


def _is_written(node: Node) -> bool:
    return path_of(node) == _NOW or (isinstance(node, Call) and node.function in _MAKERS)
