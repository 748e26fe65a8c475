"""Fetches documents of issuers, within limits of time and size, and only from the issuer."""

import asyncio
import os
import ssl
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final

import httpcore2

from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.issuer import HttpAnswer, Reach
from authplane.runtime.clients.careful_network import CarefulNetwork
from authplane.runtime.clients.private_networks import PublicNetwork

_HEADERS: Final = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "authplane"))
_SHOWN: Final = 300
_FAILURES: Final = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
    OSError,
    UnicodeError,
    zlib.error,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """What one answer may cost."""

    connect: float = 2.0
    read: float = 2.0
    """Seconds between two parts of an answer."""
    total: float = 5.0
    largest: int = 1024 * 1024
    """Bytes of the body, packed and unpacked."""


class FetchError(Exception):
    """No answer that could be looked at; the message says why and quotes nothing secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerClient:
    """Fetches from one issuer. It follows no redirects, uses no proxy, and always verifies certificates."""

    reach: Reach
    limits: FetchLimits = FetchLimits()

    async def fetch(self, url: str) -> HttpAnswer:
        """Return the complete answer; raises `FetchError` if it does not arrive within the limits."""
        try:
            async with asyncio.timeout(self.limits.total):
                # Reading certificates takes long enough to block other tasks.
                context = await asyncio.to_thread(trusted_by, self.reach, os.environ)
                return await self._exchange(url, context)
        except TimeoutError as error:
            raise FetchError(f"the issuer did not send a complete answer within {self.limits.total:g} s") from error
        except _FAILURES as error:
            why = shorten(printable(str(error) or type(error).__name__), _SHOWN)
            raise FetchError(why) from error

    async def _exchange(self, url: str, context: ssl.SSLContext) -> HttpAnswer:
        network = CarefulNetwork(httpcore2.AnyIOBackend() if self.reach.allow_private_network else PublicNetwork())
        timeouts = {"connect": self.limits.connect, "read": self.limits.read, "write": self.limits.read}
        async with (
            httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=network) as pool,
            pool.stream("GET", url, headers=_HEADERS, extensions={"timeout": timeouts}) as response,
        ):
            named = _headers(response)
            body = await self._body(response.aiter_stream())
        return HttpAnswer(
            status=response.status,
            body=_unpacked(body, named.get("content-encoding", ""), self.limits.largest),
            cache_control=named.get("cache-control", ""),
            age=named.get("age", ""),
            date=named.get("date", ""),
        )

    async def _body(self, parts: AsyncIterator[bytes]) -> bytes:
        body = bytearray()
        async for part in parts:
            body += part
            if len(body) > self.limits.largest:
                raise FetchError(f"the answer is larger than {self.limits.largest} bytes")
        return bytes(body)


def trusted_by(reach: Reach, environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context that trusts the CAs of an issuer; raises `FetchError` if they cannot be read.

    If the issuer has its own CAs, the context trusts only them. Otherwise it trusts the CAs of the system and those in
    the file that ``SSL_CERT_FILE`` names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if reach.ca_pem:
        _trust(context, "its CA", cadata=reach.ca_pem)
    if reach.ca_file:
        _trust(context, reach.ca_file, cafile=reach.ca_file)
    if not reach.ca_pem and not reach.ca_file:
        _trust_system(context, environment.get("SSL_CERT_FILE", ""))
    return context


def _trust_system(context: ssl.SSLContext, more: str) -> None:
    # OpenSSL uses SSL_CERT_FILE instead of the system's certificates; here it is added to them.
    paths = ssl.get_default_verify_paths()
    if Path(paths.openssl_cafile).is_file():
        _trust(context, paths.openssl_cafile, cafile=paths.openssl_cafile)
    if Path(paths.openssl_capath).is_dir():
        _trust(context, paths.openssl_capath, capath=paths.openssl_capath)
    if more:
        _trust(context, more, cafile=more)


def _trust(context: ssl.SSLContext, name: str, *, cafile: str = "", capath: str = "", cadata: str = "") -> None:
    try:
        context.load_verify_locations(cafile or None, capath or None, cadata or None)
    except (OSError, ValueError) as error:
        raise FetchError(f"cannot read certificates from {printable(name)}") from error


def _headers(response: httpcore2.Response) -> Mapping[str, str]:
    """Return the headers by name in lower case; values of one name are joined."""
    found: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _unpacked(body: bytes, encoding: str, largest: int) -> bytes:
    """Decompress an answer, and stop as soon as it gets too large; the request did not ask for compression."""
    match encoding.strip().lower():
        case "" | "identity":
            return body
        case "gzip" | "x-gzip":
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
        case "deflate":
            unpack = zlib.decompressobj()
        case _:
            raise FetchError("the answer has an unknown Content-Encoding")
    whole = unpack.decompress(body, largest + 1)
    if len(whole) > largest:
        raise FetchError(f"the answer is larger than {largest} bytes")
    if not unpack.eof:
        raise FetchError("the answer is incomplete")
    return whole


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it comes from."""
    while error is not None:
        yield error
        below = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = below or error.__cause__ or error.__context__
