"""An HTTP/2 client that sends what a proper one would not."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from tests.support.eventually import LIMIT

from authplane.runtime.servers.listen import Address, TcpAddress

_FRAME_HEADER: Final = 9
"""In bytes; the first three are the length of what follows it."""

Headers = list[tuple[bytes, bytes]]
CHECK: Final = b"/envoy.service.auth.v3.Authorization/Check"


@dataclass(slots=True)
class Outcome:
    """What became of a call."""

    http: int | None = None
    grpc: int | None = None
    reset: int | None = None
    """The error code of a reset stream."""
    body: bytes = b""

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.reset is not None or self._ended

    _ended: bool = field(default=False, repr=False, compare=False)


class RawClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.h2 = H2Connection(
            H2Configuration(
                client_side=True,
                header_encoding=None,
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
                validate_inbound_headers=False,
            )
        )
        self.h2.initiate_connection()
        self.outcomes: dict[int, Outcome] = {}
        self.closed = False
        self._unread = b""

    async def call(self, headers: Iterable[tuple[bytes, bytes]], body: bytes | None, *, end: bool = True) -> int:
        """Begin a call; without ``end`` its body goes on."""
        stream = self.h2.get_next_available_stream_id()
        self.outcomes[stream] = Outcome()
        self.h2.send_headers(stream, list(headers), end_stream=body is None and end)
        if body is not None:
            await self.more(stream, body, end=end)
        await self.flush()
        return stream

    async def more(self, stream: int, body: bytes, *, end: bool = False) -> None:
        """Send more of a body, as fast as the server lets us; stops when the call has ended."""
        while body and not self.outcomes[stream].ended and not self.closed:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(body))
            if not room:
                await self.flush()
                await self._receive()
                continue
            self.h2.send_data(stream, body[:room])
            body = body[room:]
            await self.flush()
        if end and not self.outcomes[stream].ended and not self.closed:
            self.h2.end_stream(stream)
            await self.flush()

    async def outcome(self, stream: int) -> Outcome:
        """Wait until a call has ended; one whose connection is closed has."""
        async with asyncio.timeout(LIMIT):
            while not self.outcomes[stream].ended and not self.closed:
                await self._receive()
        return self.outcomes[stream]

    async def settled(self) -> None:
        """Wait for the server's settings."""
        async with asyncio.timeout(LIMIT):
            await self.flush()
            await self._receive()

    async def flush(self) -> None:
        """Send what is due."""
        self._writer.write(self.h2.data_to_send())
        try:
            await self._writer.drain()
        except OSError:
            self.closed = True

    async def _receive(self) -> None:
        try:
            data = await self._reader.read(65536)
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return
        self._unread += data
        for event in self._events():
            match event:
                case ResponseReceived() | TrailersReceived():
                    self._read(event.stream_id, event.headers)
                case DataReceived():
                    if event.stream_id is not None:
                        self.outcomes[event.stream_id].body += event.data or b""
                        self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
                case StreamEnded():
                    self.outcomes[event.stream_id]._ended = True
                case StreamReset():
                    self.outcomes[event.stream_id].reset = int(event.error_code or 0)
                case ConnectionTerminated():
                    self.closed = True
                case _:
                    pass
        await self.flush()

    def _events(self) -> Iterator[Event]:
        """Yield what was received up to the end of the connection: h2 refuses whatever comes behind that."""
        while not self.closed and len(self._unread) >= (whole := _FRAME_HEADER + int.from_bytes(self._unread[:3])):
            frame, self._unread = self._unread[:whole], self._unread[whole:]
            yield from self.h2.receive_data(frame)

    def _read(self, stream: int | None, headers: Iterable[tuple[bytes | str, bytes | str]] | None) -> None:
        if stream is None:
            return
        found = dict(headers or ())
        outcome = self.outcomes[stream]
        if b":status" in found:
            outcome.http = int(found[b":status"])
        if b"grpc-status" in found:
            outcome.grpc = int(found[b"grpc-status"])


def call_headers(path: bytes = CHECK, kind: bytes = b"application/grpc", *more: tuple[bytes, bytes]) -> Headers:
    """Return the headers of a gRPC call."""
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"authz"),
        (b"content-type", kind),
        (b"te", b"trailers"),
        *more,
    ]


def frame(message: bytes, flag: int = 0) -> bytes:
    """Put a message into a gRPC frame."""
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


@asynccontextmanager
async def raw_client(address: Address) -> AsyncGenerator[RawClient]:
    """Connect to a server on this machine."""
    assert isinstance(address, TcpAddress)
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    try:
        client = RawClient(reader, writer)
        await client.settled()
        yield client
    finally:
        writer.close()
