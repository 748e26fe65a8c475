"""Messages on a client's streams, and the effects of a session."""

from typing import TypeAlias

from authplane.core.values import dataclass
from authplane.xds.bootstrap.xds_bootstrap import Node, XdsServer
from authplane.xds.client.watch_events import Event


@dataclass(frozen=True, slots=True)
class Link:
    """One attempt to talk to a server; what a late one still says is ignored."""

    server: XdsServer
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A discovery request of the state-of-the-world variant."""

    type_url: str
    names: tuple[str, ...]
    version: str = ""
    """What was accepted last."""
    nonce: str = ""
    error: str | None = None
    """Why the response with this nonce is refused; None accepts it."""
    node: Node | None = None
    """The client's identity; only in the first request of a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One resource of a response."""

    type_url: str
    body: bytes
    name: str = ""
    """From a wrapper around the resource; empty without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A server's word that it cannot send a resource."""

    name: str
    code: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A discovery response of the state-of-the-world variant."""

    type_url: str
    version: str
    nonce: str
    items: tuple[Item, ...] = ()
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """Effect: connect and open a stream; then call ``connected``, or ``ended`` if that fails."""

    link: Link


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Effect: end the stream or the attempt; its end need not be reported."""

    link: Link


@dataclass(frozen=True, slots=True)
class Send:
    """Effect: write a request, in this order; call ``sent`` when it is written."""

    link: Link
    request: Request


@dataclass(frozen=True, slots=True)
class Notify:
    """Effect: tell a watcher, in this order."""

    watcher: int
    event: Event[object]


Effect: TypeAlias = Connect | Disconnect | Send | Notify
