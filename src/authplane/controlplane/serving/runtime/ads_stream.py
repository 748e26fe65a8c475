"""One xDS stream: a session, fed by the client's requests, by snapshots and by the clock."""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar, assert_never

import grpc

from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.values import dataclass
from authplane.xds.server.delta import DeltaSession
from authplane.xds.server.node_identity import Role
from authplane.xds.server.snapshot import Editions, Snapshot
from authplane.xds.server.sotw import SotwSession
from authplane.xds.server.stream_messages import (
    Acked,
    DeltaRequest,
    DeltaResponse,
    Nacked,
    Output,
    Refused,
    SotwRequest,
    SotwResponse,
    Standing,
)
from authplane.xds.server.stream_session import StreamSession
from authplane.xds.server.wire import (
    parse_delta_request,
    parse_sotw_request,
    render_delta_response,
    render_sotw_response,
)

_BACKLOG: Final = 16
"""Requests of one client that wait to be read; more stay in the transport, which makes the client wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A client sent its first request."""

    node: str
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected:
    """A stream ended after its first request, or was ended before."""

    node: str
    peer: str
    reason: str = ""
    """Why we ended the stream; empty if the client did."""


AdsEvent: TypeAlias = Connected | Acked | Nacked | Disconnected

Request = TypeVar("Request", bound=SotwRequest | DeltaRequest)
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Generic[Request, Response]):
    """One of the two variants of the protocol."""

    session: Callable[[float], StreamSession[Request, Response]]
    parse: Callable[[bytes], Request | None]
    render: Callable[[Response], bytes]


SOTW: Final[Variant[SotwRequest, SotwResponse]] = Variant(
    session=lambda patience: SotwSession(patience=patience),
    parse=parse_sotw_request,
    render=render_sotw_response,
)
DELTA: Final[Variant[DeltaRequest, DeltaResponse]] = Variant(
    session=lambda patience: DeltaSession(patience=patience),
    parse=parse_delta_request,
    render=render_delta_response,
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How we end a stream."""

    code: grpc.StatusCode
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How many seconds a stream waits for its client."""

    patience: float
    """For an answer, before the next step."""
    write_limit: float
    """For room to write, before the stream ends."""


STOPPING: Final = Ending(grpc.StatusCode.UNAVAILABLE, "the server is shutting down")
_GARBLED: Final = Ending(grpc.StatusCode.INVALID_ARGUMENT, "the request is not a discovery request")
_SLOW: Final = Ending(grpc.StatusCode.DEADLINE_EXCEEDED, "the client does not read its responses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a stream serves, and which clients it admits."""

    published: Callable[[], Editions | None]
    """The latest generation."""
    admit: Callable[[str], Role | str]
    """Tells what the client is by its node id, or why it is refused."""


class Stream(Generic[Request, Response]):
    """Runs one session until the client leaves, breaks a rule, stops reading, or the server stops."""

    def __init__(
        self,
        variant: Variant[Request, Response],
        context: grpc.aio.ServicerContext[bytes, bytes],
        sink: Callable[[AdsEvent], None],
        *,
        offer: Offer,
        waits: Waits,
    ) -> None:
        self._variant = variant
        self._session = variant.session(waits.patience)
        self._context = context
        self._sink = sink
        self._offer = offer
        self._role = Role.GRPC
        self._write_limit = waits.write_limit
        self._requests: asyncio.Queue[bytes] = asyncio.Queue(_BACKLOG)
        self._wake = asyncio.Event()
        self._snapshot: Snapshot | None = None
        self._first: Request | None = None
        self._left = False
        self._ending: Ending | None = None
        self._connected = False

    @property
    def standing(self) -> Standing | None:
        """The client's answers to the current snapshot; None before its first request."""
        return None if self._first is None else self._session.standing

    @property
    def edition(self) -> Release | None:
        """The release of Envoy whose configuration the client gets; the current one before it has said anything."""
        return CURRENT if self._first is None else self._first.edition

    def pick(self, editions: Editions) -> Snapshot | None:
        """Return the client's part of a generation; None before its first request."""
        return None if self._first is None else self._part(editions, self._first)

    def publish(self, snapshot: Snapshot) -> None:
        """Bring the client to this snapshot, which was picked for it; one that is not yet begun is replaced."""
        self._snapshot = snapshot
        self._wake.set()

    def end(self, ending: Ending) -> None:
        """End the stream soon."""
        self._ending = self._ending or ending
        self._wake.set()

    async def run(self) -> None:
        """Serve the stream to its end."""
        try:
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read())
                await self._drive()
                reader.cancel()
        finally:
            self._report_end()
        if self._ending is not None:
            await self._context.abort(self._ending.code, self._ending.reason)

    async def _read(self) -> None:
        while isinstance(data := await self._context.read(), bytes):
            await self._requests.put(data)
            self._wake.set()
        self._left = True
        self._wake.set()

    async def _drive(self) -> None:
        while self._going():
            await self._sleep()
            self._wake.clear()
            if (snapshot := self._snapshot) is not None:
                self._snapshot = None
                await self._put_out(self._session.publish(snapshot, _now()))
            while self._going() and not self._requests.empty():
                await self._take(self._requests.get_nowait())
            if (due := self._session.due()) is not None and due <= _now():
                await self._put_out(self._session.elapsed(_now()))
            if self._left and self._requests.empty():
                return

    async def _sleep(self) -> None:
        due = self._session.due()
        try:
            async with asyncio.timeout_at(due):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _take(self, data: bytes) -> None:
        request = self._variant.parse(data)
        if request is None:
            self.end(_GARBLED)
            return
        if self._first is None:
            role = self._offer.admit(request.node)
            if isinstance(role, str):
                self.end(Ending(grpc.StatusCode.PERMISSION_DENIED, role))
                return
            self._role = role
            self._first = request
            if (editions := self._offer.published()) is not None:
                self._session.publish(self._part(editions, request), _now())
        output = self._session.received(request, _now())
        if not self._connected and self._session.node is not None:
            self._connected = True
            self._sink(Connected(node=self._session.node, peer=self._context.peer()))
        await self._put_out(output)

    def _part(self, editions: Editions, first: Request) -> Snapshot:
        return editions.edition(first.edition).seen_by(self._role)

    async def _put_out(self, output: Output[Response]) -> None:
        for event in output.events:
            match event:
                case Acked() | Nacked():
                    self._sink(event)
                case Refused(reason=reason):
                    self.end(Ending(grpc.StatusCode.INVALID_ARGUMENT, reason))
                case _:
                    assert_never(event)
        for response in output.responses:
            try:
                async with asyncio.timeout(self._write_limit):
                    await self._context.write(self._variant.render(response))
            except TimeoutError:
                self.end(_SLOW)
                return

    def _going(self) -> bool:
        return self._ending is None

    def _report_end(self) -> None:
        if self._connected or self._ending is not None:
            reason = self._ending.reason if self._ending else ""
            self._sink(Disconnected(node=self._session.node or "", peer=self._context.peer(), reason=reason))


def _now() -> float:
    return asyncio.get_running_loop().time()
