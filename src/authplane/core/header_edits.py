"""Header edits."""

from typing import Final

from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderEdits:
    """Headers to set (replacing what is there) and to remove; no name is in both."""

    set: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


NO_EDITS: Final = HeaderEdits()
