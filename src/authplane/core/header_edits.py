"""Header edits."""

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderEdits:
    """Headers to set (replacing what is there) and to remove; no name is in both."""

    set: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)
    """Decisions are looked up again and again, and there may be many names in them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.set, self.remove)))

    def __hash__(self) -> int:
        return self._hash


NO_EDITS: Final = HeaderEdits()
