"""Releases of Envoy, as far as conditions depend on them."""

from dataclasses import dataclass
from typing import Final

_MCP: Final = "envoy.filters.http.mcp"
_MCP_BEFORE: Final = "mcp_proxy"


@dataclass(frozen=True, slots=True, order=True)
class Release:
    """A release by its numbers: ``Release(1, 39)``."""

    major: int
    minor: int

    @property
    def mcp_metadata(self) -> str:
        """Where the mcp filter says what is called; it was renamed in 1.38."""
        return _MCP if self >= Release(1, 38) else _MCP_BEFORE

    @property
    def converts_strings(self) -> bool:
        """Whether ``string()`` and ``+`` of texts can be had; the setting for them came with 1.37."""
        return self >= Release(1, 37)

    @property
    def rejects_duplicate_keys(self) -> bool:
        """Whether the mcp filter can be told to refuse bodies in which a member stands twice."""
        return self >= Release(1, 39)


OLDEST: Final = Release(1, 36)
"""The first with an mcp filter."""
CURRENT: Final = Release(1, 39)
"""What this project is tested with."""
NEWEST: Final = Release(1, 40)
"""The last that is known here; newer ones are taken for it."""
