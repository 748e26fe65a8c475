"""The ways in which Envoy may come to its decisions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How Envoy comes to its decisions."""

    name: str
    native: bool = True
    """Envoy decides by itself where it gives the same answer."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the AuthplaneConfiguration has for it: nothing is the default."""
        return {} if self.native else {"placement": "CallOut"}


AUTO: Final = Placement(name="auto")
CALL_OUT: Final = Placement(name="call-out", native=False)
PLACEMENTS: Final = (AUTO, CALL_OUT)
"""All that are compared with the reference."""
