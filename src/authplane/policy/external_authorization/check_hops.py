"""Counts the servers that have forwarded a check, so that services that call each other in a circle stop."""

from typing import Final

from authplane.policy.check.request import Request

HOPS: Final = "authplane.hops"
"""The key of a check's context."""
HOPS_HEADER: Final = "x-authplane-hops"
"""The header of an HTTP check."""
MOST_HOPS: Final = 3


def hops_of(request: Request) -> int:
    """Return how often a check was forwarded; an invalid number counts as too often."""
    told = (*((request.context[HOPS],) if HOPS in request.context else ()), *request.values(HOPS_HEADER))
    return max((_number(each) for each in told), default=0)


def _number(text: str) -> int:
    return int(text) if text in _NUMBERS else MOST_HOPS


_NUMBERS: Final = frozenset(str(number) for number in range(MOST_HOPS))
