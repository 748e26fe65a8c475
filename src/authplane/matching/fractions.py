"""A share of all calls."""

from typing import Final

from authplane.core.values import dataclass

MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Fraction:
    """So many of a million; at most all."""

    per_million: int

    def __post_init__(self) -> None:
        if not 0 <= self.per_million <= MILLION:
            raise ValueError("a fraction is from 0 to 1")


ALWAYS: Final = Fraction(MILLION)
NEVER: Final = Fraction(0)


def is_drawn(fraction: Fraction, number: float) -> bool:
    """Tell whether a random number, at least 0 and less than 1, is within the fraction."""
    return number * MILLION < fraction.per_million


def capped(numerator: int, denominator: int) -> Fraction:
    """Make a fraction of parts of 100, 10,000 or 1,000,000; more than all is all."""
    return Fraction(min(numerator, denominator) * (MILLION // denominator))
