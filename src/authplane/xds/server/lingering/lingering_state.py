"""Remembers the extensions that one client has accepted, and until when it keeps removed parts of them."""

from collections.abc import Mapping
from typing import Final

from authplane.xds.server.lingering.wire import join_extension
from authplane.xds.server.snapshot import Versioned

LINGER: Final = 900.0
"""Seconds for which an extension keeps what routes no longer name.

Connections of a listener that was replaced use its old routes until they end. Envoy gives them 600 seconds by
default.
"""


class Lingering:
    """The extensions of one client."""

    def __init__(self) -> None:
        self._accepted: dict[str, bytes] = {}
        self._until: float | None = None

    @property
    def until(self) -> float | None:
        """When what lingers may go; None if nothing does."""
        return self._until

    def accepted(self, resources: Mapping[str, Versioned]) -> None:
        """Note what the client has taken. What it refused is no part of what lingers."""
        self._accepted |= {name: item.body for name, item in resources.items()}

    def widen(self, resources: Mapping[str, Versioned], now: float) -> dict[str, Versioned]:
        """Return these extensions with what the client has beyond them; their versions stay those of their content."""
        return {name: self._widen(name, item, now) for name, item in resources.items()}

    def end(self) -> None:
        """Let everything go that lingers."""
        self._accepted.clear()
        self._until = None

    def _widen(self, name: str, item: Versioned, now: float) -> Versioned:
        body = join_extension(self._accepted.get(name, b""), item.body)
        if body == item.body:
            return item
        self._until = now + LINGER
        return Versioned(item.version, body)
