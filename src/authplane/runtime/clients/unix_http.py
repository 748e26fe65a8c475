"""Asks a server on a unix socket: one request, one whole reply."""

import asyncio
from dataclasses import dataclass
from typing import Final

import h11

_LARGEST_REPLY: Final = 64 * 1024 * 1024
_CHUNK: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server answered."""

    status: int
    body: str


async def ask_socket(path: str, target: str, *, method: str = "GET", limit: float = 5.0) -> Reply:
    """Ask the server on a socket; raises OSError or TimeoutError if it does not answer."""
    async with asyncio.timeout(limit):
        reader, writer = await asyncio.open_unix_connection(path)
        try:
            return await _exchange(reader, writer, method, target)
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"the server on {path} did not answer in HTTP") from error
        finally:
            writer.close()


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, target: str) -> Reply:
    http = h11.Connection(h11.CLIENT)
    head = h11.Request(method=method, target=target, headers=[("host", "admin"), ("content-length", "0")])
    writer.write((http.send(head) or b"") + (http.send(h11.EndOfMessage()) or b""))
    status, body = 0, bytearray()
    while True:
        match http.next_event():
            case h11.NEED_DATA:
                http.receive_data(await reader.read(_CHUNK))
            case h11.Response(status_code=status):
                pass
            case h11.Data(data=data) if len(body) < _LARGEST_REPLY:
                body += data
            case h11.EndOfMessage():
                return Reply(status, body.decode(errors="replace"))
            case _:
                raise ConnectionError("the server ended its reply early")
