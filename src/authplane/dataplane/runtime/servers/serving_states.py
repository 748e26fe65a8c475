"""Whether a server serves."""

from collections.abc import Callable
from typing import TypeAlias

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Serving:
    """The server accepts connections on an address, with the filters of its Listener."""

    address: str


@dataclass(frozen=True, slots=True)
class NotServing:
    """The server takes no connections at an address."""

    address: str
    why: str


ServingState: TypeAlias = Serving | NotServing
Told: TypeAlias = Callable[[ServingState], None]
"""Told of each change; on a thread of the client of xDS, or on the event loop."""
