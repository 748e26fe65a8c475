"""Selects the override of a filter on a route: that of the most specific level."""

from typing import TypeAlias

from authplane.core.values import dataclass
from authplane.dataplane.config.listeners import HttpFilter
from authplane.dataplane.config.routes import Override, Overrides


@dataclass(frozen=True, slots=True)
class Effective:
    """A filter that is on, and what overrides its configuration."""

    filter: HttpFilter
    override: Override | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An override of another kind of filter: what it was meant to do is not known."""

    name: str


Chain: TypeAlias = tuple[Effective, ...]


def effective_chain(filters: tuple[HttpFilter, ...], *levels: Overrides) -> Chain | Mismatch:
    """Return the filters that run, without the one that ends the chain; the most specific level comes first.

    A level that mentions a filter decides alone, also on whether it is disabled: nothing of other levels is mixed in.
    """
    found = []
    for each in filters:
        if each.kind.terminal:
            continue
        override = _most_specific(each.name, levels)
        if each.disabled if override is None else override.disabled:
            continue
        if override is not None and override.kind != each.kind:
            return Mismatch(each.name)
        found.append(Effective(each, override))
    return tuple(found)


def _most_specific(name: str, levels: tuple[Overrides, ...]) -> Override | None:
    return next((level[name] for level in levels if name in level), None)
