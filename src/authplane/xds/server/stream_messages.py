"""Messages of an xDS stream, and reports of a session, as plain values."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Generic, TypeAlias, TypeVar

from authplane.core.envoy_releases import Release
from authplane.core.values import dataclass
from authplane.xds.server.served_types import TypeUrl, XdsName
from authplane.xds.server.snapshot import Versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class SotwRequest:
    """A request of the state-of-the-world variant: all names each time."""

    type_url: str
    node: str = ""
    edition: Release | None = None
    """The release of Envoy whose configuration fits the client; None if it may be any proxy."""
    names: tuple[str, ...] = ()
    version: str = ""
    """The version that the client accepted last, on this stream or an earlier one."""
    nonce: str = ""
    error: str | None = None
    """Why the response with this nonce is refused; None accepts it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRequest:
    """A request of the incremental variant: changes of the subscription."""

    type_url: str
    node: str = ""
    edition: Release | None = None
    """As in the other variant; it counts in the first request of a stream only, in both."""
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial_versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the client has from an earlier stream; it counts only in the first request of a type."""
    nonce: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SotwResponse:
    """Resources in name order, and the version of all that the client has afterwards."""

    type_url: TypeUrl
    version: str
    nonce: str
    resources: tuple[tuple[str, Versioned], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaResponse:
    """Changed resources and removed names, both in name order."""

    type_url: TypeUrl
    version: str
    """The version of the whole type; clients only show it."""
    nonce: str
    resources: tuple[tuple[str, Versioned], ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acked:
    """A client accepted a response."""

    node: str
    type_url: TypeUrl
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nacked:
    """A client refused a response."""

    node: str
    type_url: TypeUrl
    version: str
    names: tuple[str, ...]
    """The resources of the response that the message mentions; all of them if it mentions none."""
    message: str
    """At most 4 kB, without control characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The request is not acceptable: the stream ends."""

    reason: str


Event: TypeAlias = Acked | Nacked | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a client says of the current snapshot; it has and accepts everything that is in neither field."""

    pending: frozenset[XdsName]
    """It has not answered for these, or not subscribed to them yet."""
    refused: Mapping[XdsName, str]
    """It rejected these, with these messages."""
    named: frozenset[XdsName] | None = None
    """The Listeners that it subscribes to by name, if only these count; None for a proxy, for which all count."""


R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Output(Generic[R]):
    """Responses for the wire, in this order, and what happened."""

    responses: tuple[R, ...] = ()
    events: tuple[Event, ...] = ()
