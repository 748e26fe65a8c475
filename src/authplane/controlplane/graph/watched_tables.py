"""The resources as tables that a memory can watch."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from authplane.core.memo import Tables
from authplane.resources.documents import Resources

_WATCHED: Final = (
    "services", "secrets", "endpoint_slices", "proxies", "extension_services", "delegations", "grants"
)  # fmt: skip
"""The tables that builds read piece by piece. All other input is common to all builds."""


def tables_of(resources: Resources) -> dict[str, Mapping[Any, Any]]:
    """Return the tables by name."""
    return {name: getattr(resources, name) for name in _WATCHED}


def with_tables(resources: Resources, tables: Tables) -> Resources:
    """Return the resources with these tables instead of their own."""
    changed: dict[str, Any] = {name: tables[name] for name in _WATCHED}
    return replace(resources, **changed)
