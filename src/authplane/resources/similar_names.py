"""Suggests the resource that a misspelt reference means."""

import difflib
from collections.abc import Iterable

from authplane.core.names import ObjectName


def similar_name(wanted: ObjectName, known: Iterable[ObjectName]) -> str:
    """Return the name in the same namespace that is closest to a wanted one; empty if none is close."""
    names = [each.name for each in known if each.namespace == wanted.namespace]
    return next(iter(difflib.get_close_matches(wanted.name, names, n=1)), "")


def suggested(wanted: ObjectName, known: Iterable[ObjectName]) -> str:
    """Return a further sentence that suggests a resource, or nothing."""
    similar = similar_name(wanted, known)
    return f". Did you mean {similar!r}?" if similar else ""
