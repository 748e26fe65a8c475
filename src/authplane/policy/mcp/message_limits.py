"""Size limits of messages to MCP servers."""

from dataclasses import field
from typing import Final

from authplane.core.strict_json import Limits
from authplane.core.values import dataclass

LARGEST_BODY: Final = 1024 * 1024
LONGEST_ID: Final = 1024
"""In characters; a denial repeats the id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpLimits:
    """What is read of a request; whatever passes a limit is refused and never cut."""

    body: int = 65_536
    """In bytes; 1 MiB at most."""
    depth: int = 64
    members: int = 10_000
    json: Limits = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 < self.body <= LARGEST_BODY:
            raise ValueError(f"the body limit must be 1 to {LARGEST_BODY} bytes")
        limits = Limits(most_bytes=self.body, depth=self.depth, members=self.members)
        object.__setattr__(self, "json", limits)


DEFAULT_LIMITS: Final = McpLimits()
