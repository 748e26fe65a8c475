"""The supported filter types: a value that programs and tests build.

A filter parses its configuration once, when the resource arrives, into a frozen and hashable value. That value builds
the running filter. This module does not use protobuf: a filter's ``wire`` module parses the bytes.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, TypeVar

from authplane.core.problems import Problem
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Running, Side
from authplane.xds.bootstrap.credentials import ServiceCredentials, TlsFiles
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, XdsServer

T = TypeVar("T")

MOST_DEPTH: Final = 8
"""Maximum nesting of filters; a filter in the list of a connection manager has depth 1."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A configuration as it came: the full name of its message, without a prefix, and its bytes."""

    type_name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Structured:
    """A configuration that came as a ``TypedStruct``: the full name of its message, and its fields as JSON."""

    type_name: str
    json: str


Raw: TypeAlias = Packed | Structured


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The trust in the xDS server that sent a resource."""

    trusted: bool = False
    """Whether it may name any service and any credentials."""
    allowed_services: Mapping[str, ServiceCredentials] = field(default_factory=lambda: MappingProxyType({}))
    """Targets that a server without trust may name, each with the credentials for it, as the bootstrap has them."""
    certificate_providers: Mapping[str, TlsFiles] = field(default_factory=lambda: MappingProxyType({}))
    """The instances of certificate providers that the bootstrap has."""

    @classmethod
    def in_server(cls, server: XdsServer, bootstrap: Bootstrap) -> "Trust":
        """Tell how far a server of a bootstrap is trusted."""
        return cls(
            trusted=server.trusted,
            allowed_services=bootstrap.allowed_grpc_services,
            certificate_providers=bootstrap.certificate_providers,
        )


class Kept:
    """What filters keep across updates of their configuration, such as counters.

    Things are kept by keys that are equal as long as the same thing may be used. A generation takes over what it uses
    from the one before it; the next generation drops the rest.
    """

    __slots__ = ("_before", "_place", "_things")

    def __init__(self, before: Mapping[Hashable, object] | None = None) -> None:
        self._before: Mapping[Hashable, object] = before if before is not None else {}
        self._things: dict[Hashable, object] = {}
        self._place: tuple[Hashable, ...] = ()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, and create it on first use. All values of a key have one type."""
        if self._place:
            key = (self._place, key)
        if key not in self._things:
            self._things[key] = self._before[key] if key in self._before else make()
        thing: T = self._things[key]  # type: ignore[assignment]  # who chooses the key chooses the type
        return thing

    def below(self, place: Hashable) -> "Kept":
        """Return the store of a nested filter, whose keys are separate from those of other places."""
        part = Kept()
        part._before, part._things, part._place = self._before, self._things, (*self._place, place)
        return part

    def next_generation(self) -> "Kept":
        """Return what the next configuration builds with."""
        return Kept(self._things)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The context that a filter is built with, besides its configuration."""

    random: Callable[[], float]
    """Returns a random number from 0 to 1, excluding 1."""
    monotonic: Callable[[], float]
    """Returns the time in seconds, for cached values."""
    count: Callable[[str, str], None] = lambda _metric, _target: None
    """Adds one to a metric; the target is empty on the server side."""
    tell: Callable[[str], None] = lambda _sentence: None
    """Logs a sentence about a failure of a filter."""
    kept: Kept = field(default_factory=Kept)


class FilterConfig(Protocol):
    """A filter's configuration: frozen, hashable, equal if it means the same."""

    def build(self, state: State, override: object | None) -> Running:
        """Create the filter for calls, with the override that ``parse_override`` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The context of a configuration."""

    side: Side
    trust: Trust
    registry: "Registry"
    """For filters that contain filters."""
    depth: int = 1


Parse: TypeAlias = Callable[[Packed, Scope], FilterConfig | tuple[Problem, ...]]
ParseOverride: TypeAlias = Callable[[Packed, Scope], Hashable | tuple[Problem, ...]]
"""Every problem has its path from the message that was read. An override that is valid is no tuple, and not None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterType:
    """A filter type."""

    type_urls: tuple[str, ...]
    """Messages that configure it; with or without a prefix such as ``type.googleapis.com/``."""
    override_urls: tuple[str, ...] = ()
    """Messages that override its configuration; none if it cannot be overridden."""
    sides: frozenset[Side]
    terminal: bool = False
    """Whether the filter ends a chain; every chain ends with such a filter."""
    parse: Parse
    parse_override: ParseOverride | None = None
    parse_structured: Callable[[Structured, Scope], FilterConfig | tuple[Problem, ...]] | None = None
    """Reads a configuration that came as a ``TypedStruct``; None if the filter needs its message."""

    def __post_init__(self) -> None:
        if bool(self.override_urls) != (self.parse_override is not None):
            raise ValueError("Only one of override_urls and parse_override is set. Set both or neither.")


@dataclass(frozen=True, slots=True)
class Registry:
    """Filter types by full names of their messages."""

    configs: Mapping[str, FilterType]
    overrides: Mapping[str, FilterType]

    @classmethod
    def of(cls, *types: FilterType) -> "Registry":
        """Return a registry; raises `ValueError` if two types have the same message."""
        return cls(_by_name(types, lambda each: each.type_urls), _by_name(types, lambda each: each.override_urls))

    @property
    def types(self) -> tuple[FilterType, ...]:
        """Every type once."""
        return tuple(dict.fromkeys(self.configs.values()))

    def adding(self, *types: FilterType) -> "Registry":
        """Return a registry with further types, such as your own."""
        return Registry.of(*self.types, *types)


def message_name(type_url: str) -> str:
    """Return the full name of a message from its URL, or from the name itself."""
    return type_url.rpartition("/")[2]


def _by_name(types: tuple[FilterType, ...], urls: Callable[[FilterType], tuple[str, ...]]) -> Mapping[str, FilterType]:
    found: dict[str, FilterType] = {}
    for each in types:
        for name in map(message_name, urls(each)):
            if name in found:
                raise ValueError(f"Two filter types have the message {name}. Remove one of them.")
            found[name] = each
    return MappingProxyType(found)
