"""HTTP/1.1 and HTTP/2 to the byte: a client that tidies nothing up, and the server that all Backends are."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from h2.exceptions import ProtocolError
from tests.differential.site import Shot
from tests.support.clients.raw_h2 import RawClient

from authplane.runtime.child_processes import owned_tasks

NUMBER: Final = b"x-case"
"""The header that says which case it is."""
NOTED: Final = (b"upgrade", b"x-team")
"""Headers that must reach the server behind if, and only if, they were judged."""
PAUSE: Final = 0.002
"""In seconds, between the pieces of a slow sender: so each arrives by itself."""
_LIMIT: Final = 30.0
_CHUNKS: Final = 3
MOST_HEARD: Final = 2_000
"""Denials repeat ids of up to 1024 bytes, and exceptions look for what is behind them."""
_FRAMED: Final = frozenset({b"content-length", b"transfer-encoding"})


class Reached(NamedTuple):
    """What the server behind is asked."""

    method: str
    path: str
    body: bytes
    host: str
    noted: tuple[str, ...] = ()
    """The values of `NOTED`; several of one name are joined."""
    names: frozenset[str] = frozenset()
    """Of all headers."""


class Heard(NamedTuple):
    """What a client is answered."""

    status: int
    """0 if there was no answer."""
    text: str
    """How the body begins."""


class Message(NamedTuple):
    """A request or a response as it came."""

    start: str
    headers: dict[bytes, bytes]
    """By names in lower case; several of one name are joined."""


@dataclass
class Origin:
    """Says yes to everything, and notes what it was asked."""

    port: int = 0
    reached: dict[int, "Reached"] = field(default_factory=dict)
    """By the number of the case."""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                message = await _message(reader)
                body = await _body(reader, message, bodiless=_FRAMED.isdisjoint(message.headers))
                self._note(message, body)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nx-origin: yes\r\n\r\n")
                writer.write(b"" if message.start.startswith("HEAD ") else b"reached")
                await writer.drain()
        writer.close()

    def _note(self, message: Message, body: bytes) -> None:
        method, path, _ = message.start.split(" ")
        noted = tuple(message.headers.get(name, b"").decode() for name in NOTED)
        names = frozenset(name.decode() for name in message.headers)
        number = int(message.headers[NUMBER])
        self.reached[number] = Reached(method, path, body, message.headers[b"host"].decode(), noted, names)


@asynccontextmanager
async def origin_server() -> AsyncGenerator[Origin]:
    """Serve on this machine while the block runs."""
    origin = Origin()
    listening = await asyncio.start_server(origin.accept, "127.0.0.1", 0)
    origin.port = listening.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        listening.close()


class Line:
    """A connection that is opened when it is needed, and again after it was closed."""

    def __init__(self, lane: "Lane") -> None:
        self._lane = lane
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, number: int, shot: Shot) -> Heard:
        """Send a request and return what is answered."""
        try:
            async with asyncio.timeout(_LIMIT):
                reused = self._streams is not None
                heard = await self._try(number, shot)
                # The other side may have closed it just before.
                return await self._try(number, shot) if heard.status == 0 and reused else heard
        except TimeoutError:
            self.close()
            return Heard(0, f"no answer in {_LIMIT:g} s")

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _try(self, number: int, shot: Shot) -> Heard:
        try:
            if self._streams is None:
                self._streams = await _connected(self._lane)
            reader, writer = self._streams
            for index, piece in enumerate(pieces_of(bytes_of(number, shot), shot.pieces)):
                if index:
                    await asyncio.sleep(PAUSE)
                writer.write(piece)
                await writer.drain()
            return await self._answer(reader, shot.method)
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return Heard(0, "")

    async def _answer(self, reader: asyncio.StreamReader, method: str) -> Heard:
        while True:
            message = await _message(reader)
            status = int(message.start.split()[1])
            if status >= 200 or status == 101:
                break
        body = await _body(reader, message, bodiless=method == "HEAD" or status in {101, 204, 304})
        if message.headers.get(b"connection", b"").lower() == b"close" or status == 101:
            self.close()
        return Heard(status, body[:MOST_HEARD].decode(errors="replace").strip())


class Http2Line:
    """The same for HTTP/2: one stream after the other."""

    def __init__(self, lane: "Lane") -> None:
        self._lane = lane
        self._client: RawClient | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, number: int, shot: Shot) -> Heard:
        """Send a request and return what is answered."""
        try:
            async with asyncio.timeout(_LIMIT):
                reused = self._client is not None
                heard = await self._try(number, shot)
                return await self._try(number, shot) if heard.status == 0 and reused else heard
        except TimeoutError:
            self.close()
            return Heard(0, f"no answer in {_LIMIT:g} s")

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.close()
        self._client = self._writer = None

    async def _try(self, number: int, shot: Shot) -> Heard:
        try:
            if self._client is None:
                reader, self._writer = await _connected(self._lane)
                self._client = RawClient(reader, self._writer)
                await self._client.settled()
            client = self._client
            stream = await self._send(client, number, shot)
            outcome = await client.outcome(stream)
        except (OSError, ProtocolError):
            self.close()
            return Heard(0, "")
        if client.closed:
            self.close()
        return Heard(outcome.http or 0, outcome.body[:MOST_HEARD].decode(errors="replace").strip())

    async def _send(self, client: RawClient, number: int, shot: Shot) -> int:
        headers = http2_headers(number, shot, secure=self._lane.tls is not None)
        if not shot.body and not shot.trailers:
            return await client.call(headers, None)
        stream = await client.call(headers, None, end=False)
        for index, piece in enumerate(pieces_of(shot.body, shot.pieces)):
            if index:
                await asyncio.sleep(PAUSE)
            await client.more(stream, piece)
        if not client.outcomes[stream].ended and not client.closed:
            if shot.trailers:
                client.h2.send_headers(stream, _encoded(shot.trailers), end_stream=True)
            else:
                client.h2.end_stream(stream)
            await client.flush()
        return stream


def http2_headers(number: int, shot: Shot, *, secure: bool) -> list[tuple[bytes, bytes]]:
    """Return all headers of a request in HTTP/2."""
    pseudo = (
        (":method", shot.method),
        (":scheme", "https" if secure else "http"),
        (":path", shot.path),
        (":authority", shot.host),
    )
    hosts = (("host", shot.other_host),) if shot.other_host else ()
    return _encoded((*pseudo, *hosts, (NUMBER.decode(), str(number)), *shot.headers))


def _encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]


async def _connected(lane: "Lane") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        "127.0.0.1",
        lane.port,
        ssl=lane.tls,
        server_hostname="localhost" if lane.tls else None,
        local_addr=(lane.address, 0),
    )


def bytes_of(number: int, shot: Shot) -> bytes:
    """Write a request."""
    lines = [f"{shot.method} {shot.path} HTTP/1.1", f"host: {shot.host}", f"{NUMBER.decode()}: {number}"]
    lines += [f"{name}: {value}" for name, value in shot.headers]
    head = "\r\n".join((*lines, "", "")).encode("latin-1")
    if not shot.chunked:
        return head + shot.body
    size = len(shot.body) // _CHUNKS + 1
    parts = [shot.body[start : start + size] for start in range(0, len(shot.body), size)]
    trailers = "".join(f"{name}: {value}\r\n" for name, value in shot.trailers).encode("latin-1")
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailers + b"\r\n"


def pieces_of(data: bytes, number: int) -> list[bytes]:
    """Cut data into about so many pieces."""
    size = len(data) // number + 1
    return [data[start : start + size] for start in range(0, len(data), size)]


async def ask_all(lanes: Sequence["Lane"], at_a_time: int) -> dict[int, Heard]:
    """Send the requests of all lanes; return what is answered by number."""
    found: dict[int, Heard] = {}
    room = asyncio.Semaphore(at_a_time)

    async def run(lane: Lane) -> None:
        async with room:
            line = Http2Line(lane) if lane.http2 else Line(lane)
            try:
                for number, shot in lane.shots:
                    found[number] = await line.ask(number, shot)
            finally:
                line.close()

    async with owned_tasks() as tasks:
        for lane in lanes:
            tasks.create_task(run(lane))
    return found


class Lane(NamedTuple):
    """Requests that go over one connection, one after the other."""

    address: str
    """Of the client: who shows too many bad tokens from one is not listened to for a while."""
    port: int
    tls: ssl.SSLContext | None
    http2: bool
    shots: tuple[tuple[int, Shot], ...]


async def _message(reader: asyncio.StreamReader) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    start, *lines = head[:-4].split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for name, _, value in (line.partition(b":") for line in lines):
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else known + b"," + value.strip()
    return Message(start.decode("latin-1"), headers)


async def _body(reader: asyncio.StreamReader, message: Message, *, bodiless: bool) -> bytes:
    if bodiless:
        return b""
    if b"chunked" in message.headers.get(b"transfer-encoding", b"").lower():
        found = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            found += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
        return found
    if b"content-length" in message.headers:
        return await reader.readexactly(int(message.headers[b"content-length"]))
    return await reader.read()
