"""The resources as tables that a memory can watch."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from authplane.core.memo import Tables
from authplane.resources.documents import Resources

_WATCHED: Final = (
    "services", "secrets", "endpoint_slices", "proxies", "extension_services", "delegations", "grants"
)  # fmt: skip
"""What builds look at piece by piece. What else they look at belongs to what all builds have in common."""


def tables_of(resources: Resources) -> dict[str, Mapping[Any, Any]]:
    """Return the tables by name."""
    return {name: getattr(resources, name) for name in _WATCHED}


def with_tables(resources: Resources, tables: Tables) -> Resources:
    """Return the resources with these tables in the place of their own."""
    changed: dict[str, Any] = {name: tables[name] for name in _WATCHED}
    return replace(resources, **changed)
