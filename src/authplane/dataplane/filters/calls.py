"""A call as filters see it, and their verdicts.

A filter is a generator: it reads the call, yields an effect if it needs something, receives the outcome, and returns a
verdict. One driver runs it on asyncio, another on threads. Both close it in the end, so that it releases its resources
when the call is cancelled.
"""

from collections.abc import Callable, Generator
from datetime import datetime
from enum import Enum, IntEnum
from typing import Final, Protocol, TypeAlias

from authplane.core.addresses import parse_ip_address
from authplane.core.values import dataclass
from authplane.dataplane.filters.filter_metadata import NO_METADATA, FilterMetadata

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]
"""Keys in lower case, in order; a key may occur several times. The values of ``-bin`` keys are bytes."""


class Side(Enum):
    """Which end of the call the filters run on."""

    CLIENT = "client"
    SERVER = "server"


class Code(IntEnum):
    """The status codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One end of a connection: an IP address and a port, or the path of a unix socket and port 0."""

    address: str = ""
    port: int = 0

    @property
    def is_known(self) -> bool:
        """Whether the address is known: some servers do not know theirs, or only that it is any address of the host."""
        address = parse_ip_address(self.address)
        return bool(self.address) and (address is None or not address.is_unspecified)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """The verified certificate of the peer."""

    uris: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    subject: str = ""
    """As RFC 2253 writes it."""
    pem: bytes = b""

    @property
    def principal(self) -> str:
        """The first URI name, else the first DNS name, else the subject."""
        return (*self.uris, *self.dns_names, self.subject)[0]


class Connection(Protocol):
    """The connection of a call; each value is looked up on first use."""

    @property
    def remote(self) -> Endpoint:
        """The peer's address."""

    @property
    def local(self) -> Endpoint:
        """The local address."""

    @property
    def certificate(self) -> PeerCertificate | None:
        """The peer's verified certificate; None without mutual TLS."""

    @property
    def own_principal(self) -> str:
        """The principal of the local certificate; empty without TLS."""

    @property
    def tls_version(self) -> str:
        """Such as ``TLSv1.3``; empty without TLS."""

    @property
    def requested_server_name(self) -> str:
        """The server name (SNI) that the client sent; empty if it sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call at the time its initial metadata is known."""

    side: Side
    path: str
    """``/package.Service/Method``."""
    authority: str | None
    """None if grpcio does not provide it."""
    metadata: Metadata
    started: datetime
    remaining: float | None
    """Seconds to the deadline, None without one."""
    connection: Connection | None
    """None on the client side, where no connection exists yet."""
    target: str = ""
    """The target of the channel; empty on the server side."""
    route_metadata: FilterMetadata = NO_METADATA
    """Metadata of the call's route."""
    cluster_metadata: FilterMetadata = NO_METADATA
    """Metadata of the call's cluster; empty on the server side."""


# --- Effects of filters


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Effect: send a unary call over a side channel."""

    channel: object
    """A key that the driver's side channels know: equal keys share a channel."""
    method: str
    request: bytes
    timeout: float | None
    metadata: Metadata = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """Outcome: the reply of a side call."""

    reply: bytes


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Outcome: the side call failed."""

    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Effect: go on after so many seconds; the outcome is None. A call whose deadline passes meanwhile is cancelled."""

    seconds: float


class Flight:
    """Work that one call does and others wait for. Thread-safe."""

    __slots__ = ("_ended", "_wake")

    def __init__(self) -> None:
        self._ended = False
        self._wake: list[Callable[[], None]] = []

    def end(self) -> None:
        """Wake all waiters; the part that does the work must always call this."""
        self._ended = True
        for wake in tuple(self._wake):
            wake()

    def when_ended(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when it has ended, at once if it has; perhaps twice, and perhaps from another thread."""
        # In this order one of the two sees what the other has done, without a lock.
        self._wake.append(wake)
        if self._ended:
            wake()


@dataclass(frozen=True, slots=True)
class Until:
    """Effect: go on when a flight of another call has ended; the outcome is None.

    A call whose deadline passes meanwhile is cancelled, as with ``Wait``.
    """

    flight: Flight


Effect: TypeAlias = Ask | Wait | Until
Outcome: TypeAlias = Answered | Unanswered | None


# --- What a filter makes of a call


class Change(Enum):
    """The effect on existing values of a header. The numbers are those of the protocol."""

    APPEND = 0
    """Append the new value."""
    ADD_IF_ABSENT = 1
    """Add the new value only if there is none."""
    OVERWRITE_OR_ADD = 2
    """Replace all values by the new one."""
    OVERWRITE_IF_EXISTS = 3
    """Replace all values by the new one; do nothing if there is none."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one header."""

    key: str
    value: str | bytes
    change: Change = Change.APPEND


@dataclass(frozen=True, slots=True, kw_only=True)
class Proceed:
    """The call goes on, with this metadata."""

    metadata: Metadata
    response_metadata: Metadata = ()
    """Additions to the initial metadata of the response, independent of its content."""
    response_mutations: tuple[Mutation, ...] = ()
    """Further changes of the initial metadata of the response, in order, after those additions.

    ``headers.mutated`` makes them. If the response turns out to be trailers-only, both are dropped.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The call ends here, with a trailers-only response; the code is never OK."""

    code: Code
    message: str
    trailers: Metadata = ()

    def __post_init__(self) -> None:
        if self.code is Code.OK:
            raise ValueError("the code of a stopped call must not be OK")


Verdict: TypeAlias = Proceed | Stop
Flow: TypeAlias = Generator[Effect, Outcome, Verdict]

INTERNAL_FAULT: Final = Stop(code=Code.INTERNAL, message="internal error in a filter")
"""The verdict of a driver if a filter raises: an internal error denies the call."""


class Running(Protocol):
    """A filter with its configuration, ready for calls."""

    def run(self, call: Call) -> Flow:
        """Decide about one call."""
