"""The versions of MCP."""

from enum import StrEnum
from typing import Final


class ProtocolVersion(StrEnum):
    """A released version of MCP, by the name that messages have for it."""

    V2024_11_05 = "2024-11-05"
    V2025_03_26 = "2025-03-26"
    V2025_06_18 = "2025-06-18"
    V2025_11_25 = "2025-11-25"
    V2026_07_28 = "2026-07-28"
    """The first without sessions: every request says in its headers what is in its body."""


ASSUMED: Final = ProtocolVersion.V2025_03_26
"""What a request without the header speaks; MCP 2025-06-18, "Protocol Version Header", has it so."""

_KNOWN: Final = {version.value: version for version in ProtocolVersion}


def parse_version(header: str | None) -> ProtocolVersion | None:
    """Return the version that ``MCP-Protocol-Version`` names; None if there is no such version."""
    return ASSUMED if header is None else _KNOWN.get(header)
