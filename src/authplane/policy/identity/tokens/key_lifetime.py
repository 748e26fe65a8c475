"""How long a response may be cached, by HTTP's headers."""

import re
from typing import Final

from authplane.core.values import dataclass

SHORTEST: Final = 60.0
LONGEST: Final = 24 * 3600.0
USUAL: Final = 600.0
"""Used if the issuer sends no lifetime."""

_MAX_AGE: Final = re.compile(r'max-age="?([0-9]{1,12})"?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The shortest and longest time that an issuer can make us keep what it publishes, in seconds."""

    shortest: float = SHORTEST
    longest: float = LONGEST
    usual: float = USUAL


def lifetime(cache_control: str, age: str, bounds: Bounds) -> float:
    """Return for how many seconds an answer is fresh, from its headers Cache-Control and Age."""
    directives = [each.strip().lower() for each in cache_control.split(",")]
    if "no-store" in directives or "no-cache" in directives:
        return bounds.shortest
    ages = [int(found[1]) for each in directives if (found := _MAX_AGE.fullmatch(each))]
    if not ages:
        return bounds.usual
    spent = int(age) if age.isascii() and age.isdigit() and len(age) <= 12 else 0
    return min(max(float(min(ages) - spent), bounds.shortest), bounds.longest)
