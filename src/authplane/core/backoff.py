"""Delays after failures in a row, as in gRPC connections."""

from typing import Final

_INITIAL: Final = 1.0
_FACTOR: Final = 1.6
_JITTER: Final = 0.2
_LONGEST: Final = 120.0
_ENOUGH: Final = 11
"""After so many failures the longest delay is reached."""


def backoff_delay(failures: int, draw: float, longest: float = _LONGEST) -> float:
    """Return the seconds to wait after so many failures in a row, at least one; ``longest`` is before the jitter.

    ``draw`` is random, from 0 up to 1: it changes the delay by up to a fifth in either direction, so that clients that
    failed together do not retry together. 0.5 changes nothing.
    """
    # https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md
    delay = min(_INITIAL * _FACTOR ** min(failures - 1, _ENOUGH), longest)
    return delay * (1 + _JITTER * (2 * draw - 1))
