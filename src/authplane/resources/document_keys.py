"""The keys that must be unique among documents."""

from typing import Final

from authplane.core.names import Ref

_SINGLE: Final = frozenset({"AuthplaneConfiguration", "ContourConfiguration", "ContourDeployment"})
"""Kinds with at most one object, whatever its name."""


def key_of(ref: Ref) -> Ref:
    """Return the key that two documents must not share."""
    return Ref(ref.kind, "", "") if ref.kind in _SINGLE else ref
