"""Timeouts as policy authors write them."""

import re
from datetime import timedelta
from typing import Final, TypeAlias

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class UseDefault:
    """The field is absent or zero: the default applies."""


@dataclass(frozen=True, slots=True)
class Disabled:
    """The author wrote ``infinity``: wait for ever."""


@dataclass(frozen=True, slots=True)
class After:
    """The author wrote a duration; it is longer than zero."""

    duration: timedelta


Timeout: TypeAlias = UseDefault | Disabled | After

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TERM: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"\+?(?:{_TERM.pattern})+")
_LONGEST: Final = 87_600 * 3600.0
"""Ten years, in seconds: Envoy rejects longer durations, and no request takes longer."""


def parse_schema_timeout(text: str) -> Timeout | None:
    """Read a timeout of Contour's kinds, whose schema wants a unit, also with zero, and takes no sign."""
    return None if text == "0" or text.startswith("+") else parse_timeout(text)


def parse_timeout(text: str | None) -> Timeout | None:
    """Read a duration such as ``1m30s``, ``infinity``, or nothing; None means that the text is none of these.

    The grammar is Go's, as Contour reads it: absent, empty and zero all mean "use the default".
    """
    if text is None or text in {"", "0"}:
        return UseDefault()
    if text in {"infinity", "infinite"}:
        return Disabled()
    if not _DURATION.fullmatch(text):
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _TERM.findall(text))
    if seconds > _LONGEST:
        return None
    # Envoy counts milliseconds; a shorter timeout that is not zero must not become "none".
    return After(timedelta(seconds=max(seconds, 0.001))) if seconds else UseDefault()
