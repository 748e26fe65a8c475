"""Routes as a RouteConfiguration has them."""

from collections.abc import Hashable
from typing import Final, TypeAlias

from authplane.core.values import dataclass
from authplane.dataplane.config.frozen import FrozenMap
from authplane.dataplane.config.metadata import NO_METADATA, ResourceMetadata
from authplane.dataplane.filters.registry import FilterType
from authplane.matching.fractions import Fraction
from authplane.matching.header_matchers import HeaderMatcher
from authplane.matching.string_matchers import StringMatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """What one level says of one filter."""

    kind: FilterType | None = None
    """Which kind of filter it overrides; None if this level only switches the filter off."""
    config: Hashable | None = None
    """What the ``parse_override`` of that kind made."""
    disabled: bool = False


Overrides: TypeAlias = FrozenMap[str, Override]
"""By the name that the filter has in its connection manager."""

NO_OVERRIDES: Final[Overrides] = FrozenMap()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteMatch:
    """Which calls a route is for."""

    path: StringMatcher
    headers: tuple[HeaderMatcher, ...] = ()
    """All of them must match."""
    fraction: Fraction | None = None
    """None means all calls that match otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWeight:
    """A cluster, and how often it is chosen."""

    name: str
    weight: int = 1
    """At least 1."""
    overrides: Overrides = NO_OVERRIDES


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Calls go to one of these clusters."""

    clusters: tuple[ClusterWeight, ...]
    """At least one."""
    longest: float | None = None
    """How many seconds a call may take; 0 means any number, None that the connection manager says it."""


@dataclass(frozen=True, slots=True)
class NonForwarding:
    """Calls are answered where they arrive."""


@dataclass(frozen=True, slots=True)
class UnsupportedAction:
    """Calls cannot be served."""


Action: TypeAlias = Forward | NonForwarding | UnsupportedAction


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is done with the calls that match."""

    name: str = ""
    match: RouteMatch
    action: Action
    overrides: Overrides = NO_OVERRIDES
    metadata: ResourceMetadata = NO_METADATA


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualHost:
    """Routes of some authorities; the first that matches is taken."""

    name: str = ""
    domains: tuple[str, ...]
    """In lower case; with a wildcard at one end, or the wildcard alone."""
    routes: tuple[Route, ...] = ()
    overrides: Overrides = NO_OVERRIDES


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteConfiguration:
    """All routes of a listener."""

    name: str = ""
    virtual_hosts: tuple[VirtualHost, ...] = ()


def clusters_of(host: VirtualHost) -> tuple[str, ...]:
    """Return every cluster that a virtual host names, once."""
    return tuple(
        dict.fromkeys(
            weighted.name
            for route in host.routes
            if isinstance(route.action, Forward)
            for weighted in route.action.clusters
        )
    )
