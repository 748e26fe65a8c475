"""The state of one resource at a client."""

from dataclasses import field
from enum import Enum, auto

from authplane.core.values import dataclass
from authplane.xds.bootstrap.xds_bootstrap import Node, XdsServer
from authplane.xds.client.watch_events import NOTHING, Fault, View


class Standing(Enum):
    """What became of a resource that is watched."""

    REQUESTED = auto()
    """Nothing is known of it yet."""
    DOES_NOT_EXIST = auto()
    ACKED = auto()
    NACKED = auto()
    RECEIVED_ERROR = auto()
    """The server says that it cannot send it."""
    TIMEOUT = auto()
    """The server has not sent it in time."""


@dataclass(frozen=True, slots=True)
class Key:
    """A resource by its type and the one spelling of its name."""

    type_url: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A resource that is in use."""

    value: object
    body: bytes
    version: str
    source: XdsServer
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """Why a later state of a resource is not in use."""

    fault: Fault
    version: str
    at: float


@dataclass(slots=True, kw_only=True)
class Entry:
    """One watched resource."""

    key: Key
    standing: Standing = Standing.REQUESTED
    held: Held | None = None
    setback: Setback | None = None
    watchers: dict[int, None] = field(default_factory=dict)
    """In the order they came."""
    told: View = NOTHING
    """What watchers have heard."""

    def take(self, held: Held) -> None:
        """Use a resource."""
        self.held, self.standing, self.setback = held, Standing.ACKED, None

    def suffer(self, standing: Standing, setback: Setback, *, drop: bool) -> None:
        """Record a fault with the resource's data; the resource stays in use unless it is to be dropped."""
        self.standing, self.setback = standing, setback
        if drop:
            self.held = None

    def view(self, unreachable: Fault | None) -> View:
        """Return what watchers must know: a fault with the data counts more than one with the connection."""
        fault = unreachable if self.setback is None else self.setback.fault
        return View(value=None if self.held is None else self.held.value, fault=fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumped:
    """One watched resource, for those who debug."""

    key: Key
    standing: Standing
    held: Held | None
    setback: Setback | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDump:
    """What a client knows, for those who debug."""

    node: Node
    scope: str
    """What the client is for, such as the target of a channel; ``#server`` for servers."""
    resources: tuple[Dumped, ...]
    epoch: float
    """What to add to a time in it to get seconds since 1970."""


def dump(entry: Entry) -> Dumped:
    """Copy the state of a resource."""
    return Dumped(key=entry.key, standing=entry.standing, held=entry.held, setback=entry.setback)
