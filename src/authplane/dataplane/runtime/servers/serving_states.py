"""The serving states of a server."""

from collections.abc import Callable
from typing import TypeAlias

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Serving:
    """The server accepts connections on an address, with the filters of its Listener."""

    address: str


@dataclass(frozen=True, slots=True)
class NotServing:
    """The server accepts no connections on an address."""

    address: str
    why: str


ServingState: TypeAlias = Serving | NotServing
Told: TypeAlias = Callable[[ServingState], None]
"""Receives each change, on a thread of the xDS client or on the event loop."""
