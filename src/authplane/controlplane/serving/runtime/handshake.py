"""One attempt to reach an HTTP/2 server as Envoy would: connect, TLS with our certificate, and the first frame.

With TLS 1.3 a client's handshake is complete before the server has verified its certificate. So the attempt continues
until the server has sent its first frame, which it does only for clients that it accepts.
"""

import asyncio
import os
import ssl
from collections.abc import Sequence
from enum import Enum
from typing import Final, TypeAlias, assert_never

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

LIMIT: Final = 5.0
"""Seconds that one attempt may take."""
# RFC 9113 §3.4: the connection preface of a client, which ends with a SETTINGS frame, here an empty one.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME_HEAD: Final = 9
_SETTINGS: Final = 4


class _ClientTlsError(Exception):
    """The files or certificates of the client's side cannot be used here; the message is a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PemFiles:
    """A certificate chain and its key, by their paths."""

    certificate: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PemPair:
    """A certificate chain and its key."""

    certificate: bytes
    key: Secret[bytes]


Shown: TypeAlias = PemFiles | PemPair


class Trust(Enum):
    """What a client without a CA of its own trusts."""

    SYSTEM = "system"
    """The CAs that this machine trusts."""
    ANYBODY = "anybody"
    """Every server: its certificate is not verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The CA that a client trusts, the server name that it sends, and the certificate that it presents."""

    ca: bytes | str | Trust
    """The CA itself, or the path of its file; or what the client trusts without one."""
    server_name: str
    shown: Shown | None = None


class Cause(Enum):
    """Why a handshake failed."""

    UNREACHABLE = "unreachable"
    SERVER_CERTIFICATE = "server certificate"
    """The client does not trust the server's certificate."""
    HANDSHAKE = "handshake"
    """The server ended it, as it does if a client certificate is missing or not from its CA."""
    PROTOCOL = "protocol"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The server does not accept us, or we do not trust it."""

    cause: Cause
    why: str
    """A description for operators."""


@dataclass(frozen=True, slots=True)
class NotTried:
    """The attempt cannot be made from here."""

    why: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server accepts us."""


Greeting: TypeAlias = Accepted | Refused | NotTried


async def greet_all(addresses: Sequence[Address], tls: ClientTls | None) -> list[Greeting]:
    """Try servers side by side."""
    async with asyncio.TaskGroup() as tasks:
        tried = [tasks.create_task(greet(address, tls)) for address in addresses]
    return [each.result() for each in tried]


class Speaks(Enum):
    """The protocol that a server should speak."""

    HTTP2 = "h2"
    """The attempt ends with the server's first frame."""
    ANYTHING = "anything"
    """The attempt ends with the connection, or with the client's TLS handshake: HTTP/1.1 servers wait for a request."""


async def greet(
    address: Address, tls: ClientTls | None, *, limit: float = LIMIT, speaks: Speaks = Speaks.HTTP2
) -> Greeting:
    """Try a server once."""
    try:
        context = None if tls is None else _context(tls, speaks)
    except _ClientTlsError as error:
        return NotTried(str(error))
    try:
        async with asyncio.timeout(limit):
            spoke = await _exchange(address, context, tls.server_name if tls is not None else "", speaks)
    except TimeoutError:
        return Refused(cause=Cause.UNREACHABLE, why=f"the server did not answer within {limit:g} s")
    except (OSError, asyncio.IncompleteReadError) as error:
        return _refused(error, secure=tls is not None)
    return Accepted() if spoke else Refused(cause=Cause.PROTOCOL, why="the server does not speak HTTP/2")


def _refused(error: OSError | asyncio.IncompleteReadError, *, secure: bool) -> Refused:
    match error:
        case ssl.SSLCertVerificationError():
            return Refused(
                cause=Cause.SERVER_CERTIFICATE,
                why=f"cannot verify the server's certificate: {_certificate_words(error)}",
            )
        case ssl.SSLError():
            return Refused(cause=Cause.HANDSHAKE, why=f"TLS handshake failed: {_words(error)}")
        case asyncio.IncompleteReadError() | ConnectionResetError() | ConnectionAbortedError() | BrokenPipeError():
            if secure:
                return Refused(cause=Cause.HANDSHAKE, why="TLS handshake failed: the server closed the connection")
            return Refused(cause=Cause.PROTOCOL, why="the server closed the connection before it sent a frame")
        case _:
            return Refused(cause=Cause.UNREACHABLE, why=_words(error))


async def _exchange(address: Address, context: ssl.SSLContext | None, name: str, speaks: Speaks) -> bool:
    named = name if context is not None else None
    match address:
        case TcpAddress(host=host, port=port):
            reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=named)
        case UnixAddress(path=path):
            reader, writer = await asyncio.open_unix_connection(path, ssl=context, server_hostname=named)
        case _:
            assert_never(address)
    try:
        if speaks is Speaks.ANYTHING:
            return True
        writer.write(_PREFACE)
        head = await reader.readexactly(_FRAME_HEAD)
    finally:
        writer.transport.abort()
    return head[3] == _SETTINGS


def _context(tls: ClientTls, speaks: Speaks) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"] if speaks is Speaks.HTTP2 else ["h2", "http/1.1"])
    try:
        _trust(context, tls.ca)
    except (ssl.SSLError, OSError, UnicodeDecodeError) as error:
        where = tls.ca if isinstance(tls.ca, str) else "the CA"
        raise _ClientTlsError(f"cannot read {where}: {_words(error)}") from error
    match tls.shown:
        case None:
            pass
        case PemFiles(certificate=certificate, key=key):
            _show(context, certificate, key)
        case PemPair(certificate=certificate, key=key):
            _show_pair(context, certificate, key)
        case _:
            assert_never(tls.shown)
    return context


def _trust(context: ssl.SSLContext, ca: bytes | str | Trust) -> None:
    match ca:
        case bytes():
            context.load_verify_locations(cadata=ca.decode("ascii"))
        case str():
            context.load_verify_locations(cafile=ca)
        case Trust.SYSTEM:
            context.load_default_certs()
        case Trust.ANYBODY:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        case _:
            assert_never(ca)


def _show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    try:
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        raise _ClientTlsError(f"cannot use {certificate} and {key}: {_words(error)}") from error


def _show_pair(context: ssl.SSLContext, certificate: bytes, key: Secret[bytes]) -> None:
    """Show a certificate that is in memory, where the key stays: the ssl module takes nothing but paths."""
    held = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        os.write(held, certificate + b"\n" + key.reveal())
        context.load_cert_chain(f"/proc/self/fd/{held}", password="")
    except (ssl.SSLError, OSError) as error:
        raise _ClientTlsError(f"cannot use the client certificate: {_words(error)}") from error
    finally:
        os.close(held)


def _certificate_words(error: ssl.SSLCertVerificationError) -> str:
    """Return what is wrong, without a full stop: OpenSSL ends some of its messages with one, and not others."""
    return error.verify_message.rstrip(".")


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    # asyncio's message has the address, which is known, and not the reason.
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
