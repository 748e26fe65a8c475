"""The server behind the gateway: it answers everything, and remembers which requests came."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@dataclass
class Origin:
    """Every request has a number, which is the end of its path."""

    port: int = 0
    reached: set[int] = field(default_factory=set)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or b"0"))
                number = head.split(b" ", 2)[1].rpartition(b"/")[2]
                if number.isdigit():
                    self.reached.add(int(number))
                writer.write(_ANSWER)
                await writer.drain()
        self._open.discard(writer)
        writer.close()

    def close(self) -> None:
        for writer in self._open:
            writer.transport.abort()


@asynccontextmanager
async def serve_origin() -> AsyncGenerator[Origin]:
    origin = Origin()
    listening = await asyncio.start_server(origin.accept, "127.0.0.1", 0)
    origin.port = listening.sockets[0].getsockname()[1]
    try:
        yield origin
    finally:
        listening.close()
        origin.close()
