"""A small API server over TLS that answers as a test says, and remembers what it was asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certificates import authority, server


@dataclass
class Asked:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    client: str
    """The name in the client's certificate."""


@dataclass
class FakeApiServer:
    """Answers each request by ``answer``; bytes are sent as they are, and the connection is closed."""

    answer: Callable[[Asked], list[bytes]]
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    @asynccontextmanager
    async def serve(self, folder: Path) -> AsyncIterator["FakeApiServer"]:
        pair = server("localhost")
        pem = folder / "api-server.pem"
        pem.write_bytes(pair.certificate + pair.key.reveal())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        context.load_verify_locations(cadata=authority().certificate.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        listening = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=context)
        async with listening:
            self.url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            yield self

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ")
            headers = {line.split(": ")[0].lower(): line.split(": ", 1)[1] for line in head[1:] if line}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            peer = writer.get_extra_info("peercert") or {}
            client = next((value for part in peer.get("subject", ()) for _, value in part), "")
            asked = Asked(method, target, headers, body, client)
            self.asked.append(asked)
            for part in self.answer(asked):
                writer.write(part)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def reply(status: int, body: bytes = b"{}") -> list[bytes]:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return [f"{head}connection: close\r\n\r\n".encode() + body]
