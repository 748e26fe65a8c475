"""What two documents must not share."""

from typing import Final

from authplane.core.names import Ref

_SINGLE: Final = frozenset({"AuthplaneConfiguration", "ContourConfiguration", "ContourDeployment"})
"""Kinds of which there is at most one object, whatever its name."""


def key_of(ref: Ref) -> Ref:
    """Return what two documents must not share."""
    return Ref(ref.kind, "", "") if ref.kind in _SINGLE else ref
