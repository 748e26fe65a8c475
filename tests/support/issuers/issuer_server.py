"""An issuer over HTTPS that says, byte for byte, what a test wants."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.certificates import authority, server
from tests.support.issuers.minting import Signer, key_set

from authplane.core.problems import Problems
from authplane.devkit.identities.throwaway_certificates import KeyPair
from authplane.policy.identity.tokens.issuer import Issuer, Reach
from authplane.policy.identity.tokens.issuer_url import parse_issuer_url

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]
METADATA = "/.well-known/openid-configuration"


def response(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    head = "\r\n".join([f"HTTP/1.1 {status}", "Connection: close", f"Content-Length: {len(body)}", *headers])
    return f"{head}\r\n\r\n".encode() + body


@dataclass
class IssuerServer:
    """What it says to whom, and what it was asked."""

    port: int = 0
    answers: dict[str, bytes | Respond] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)
    """All bytes of requests, after TLS."""
    connections: int = 0
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    def publish(self, *signers: Signer, cache_control: str = "max-age=3600") -> None:
        """Be an issuer in order, with these keys."""
        body = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        self.answers[METADATA] = response(json.dumps(body).encode())
        self.answers["/keys"] = response(key_set(*(each.jwk() for each in signers)), f"Cache-Control: {cache_control}")

    def issuer(self, **reach: object) -> Issuer:
        url = parse_issuer_url(self.url, Problems())
        assert url is not None
        settings = {"allow_private_network": True, "ca_pem": authority().certificate.decode(), **reach}
        return Issuer(url=url, reach=Reach(**settings))  # type: ignore[arg-type]

    async def until(self, holds: Callable[["IssuerServer"], bool]) -> None:
        async with asyncio.timeout(5), self.news:
            await self.news.wait_for(lambda: holds(self))

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heard += head
            path = head.split(b" ")[1].decode()
            async with self.news:
                self.asked.append(path)
                self.news.notify_all()
            answer = self.answers.get(path, response(b"", status="404 Not Found"))
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(writer)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def issuer_server(folder: Path, pair: KeyPair | None = None) -> AsyncGenerator[IssuerServer]:
    shown = pair or server("localhost")
    certificate, key = folder / "issuer.crt", folder / "issuer.key"
    certificate.write_bytes(shown.certificate)
    key.write_bytes(shown.key.reveal())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    issuer = IssuerServer()
    listening = await asyncio.start_server(issuer.accept, "127.0.0.1", 0, ssl=context)
    issuer.port = listening.sockets[0].getsockname()[1]
    try:
        yield issuer
    finally:
        listening.close()
