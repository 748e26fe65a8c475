"""The credentials of this program at an API server, as they are now: files and programs may give new ones."""

import asyncio
import os
import ssl
import time
from pathlib import Path
from typing import Final, TypeAlias

from authplane.core.problems import printable
from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.runtime.kubernetes.exec_plugin import Issued, run_plugin
from authplane.runtime.kubernetes.kubeconfig import CredentialsError, Login, Pem

__all__ = ["Connection", "Credentials", "CredentialsError"]

_EARLY: Final = 10.0
"""So many seconds before credentials of a program expire it is run again."""
_LARGEST_TOKEN: Final = 2**20
_NOTHING: Final = Issued()

_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to make the next request."""

    server: str
    tls: ssl.SSLContext | None
    """The same object while certificates are the same; None for an address without TLS."""
    tls_server_name: str = ""
    token: Secret[str] | None = None


class Credentials:
    """A login whose files and programs are followed."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._alone = asyncio.Lock()
        self._issued = _NOTHING
        self._tls: ssl.SSLContext | None = None
        self._tls_of: tuple[_Stamp, Issued] | None = None
        self._token: Secret[str] | None = None
        self._token_of: _Stamp = ()

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._login.server

    @property
    def namespace(self) -> str:
        """The namespace of objects that name none: that of the Pod, or of the context."""
        return self._login.namespace

    async def connection(self, *, refused: bool = False) -> Connection:
        """Return what to connect with now; raises `CredentialsError` if there is nothing.

        ``refused`` says that the API server did not accept the last one, so that it is obtained again.
        """
        async with self._alone:
            if self._login.exec_plugin is not None and (refused or self._expired()):
                self._issued = await run_plugin(self._login.exec_plugin)
            tls = await self._context() if self.server.startswith("https:") else None
            return Connection(
                server=self.server,
                tls=tls,
                tls_server_name=self._login.tls_server_name,
                token=self._bearer(refused=refused),
            )

    def _expired(self) -> bool:
        until = self._issued.expires_at
        return self._issued is _NOTHING or (until is not None and time.time() >= until - _EARLY)

    def _bearer(self, *, refused: bool) -> Secret[str] | None:
        path = self._login.token_file
        if not path:
            return self._issued.token or self._login.token
        stamp = _stamp_of(path)
        if refused or self._token is None or stamp != self._token_of:
            self._token, self._token_of = _read_token(path, self._token), stamp
        return self._token

    async def _context(self) -> ssl.SSLContext:
        login = self._login
        paths = [pem.path for pem in (login.ca, login.certificate, login.key) if pem is not None]
        known = (_stamp_of(*paths), self._issued)
        if self._tls is None or known != self._tls_of:
            try:
                self._tls = await asyncio.to_thread(_build_context, login, self._issued)
            except CredentialsError:
                # For instance, the certificate is new and the key is not yet: the next request reads both.
                if self._tls is None:
                    raise
                return self._tls
            self._tls_of = known
        return self._tls


def _build_context(login: Login, issued: Issued) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if login.ca is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=_content(login.ca).decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise CredentialsError(
                f"{_name(login.ca, 'certificate-authority-data')} has no certificates. Use PEM."
            ) from None
    if issued.certificate is not None:
        _show(context, issued.certificate.reveal(), "The client certificate of the exec plugin")
    elif login.certificate is not None and login.key is not None:
        pem = _content(login.certificate) + b"\n" + _content(login.key)
        _show(context, pem, _name(login.certificate, "client-certificate-data"))
    return context


def _show(context: ssl.SSLContext, pem: bytes, name: str) -> None:
    """Let a context show a client certificate; the library only takes files, so it gets one that has no name."""
    held = os.memfd_create("client", os.MFD_CLOEXEC)
    try:
        with open(held, "wb", closefd=False) as file:
            file.write(pem)
        context.load_cert_chain(f"/proc/self/fd/{held}", password="")
    except (ssl.SSLError, ValueError):
        raise CredentialsError(f"{name} is not usable with its key. Use PEM without a password.") from None
    finally:
        os.close(held)


def _content(pem: Pem) -> bytes:
    if pem.content is not None:
        return pem.content.reveal()
    try:
        return Path(pem.path).read_bytes()
    except OSError as error:
        raise CredentialsError(
            f"Cannot read {printable(pem.path)}: {error.strerror}. Check the path and the permissions."
        ) from None


def _name(pem: Pem, otherwise: str) -> str:
    return printable(pem.path) or otherwise


def _read_token(path: str, before: Secret[str] | None) -> Secret[str]:
    """Read a token; while a file cannot be read, the one before is used, as client-go does."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LARGEST_TOKEN).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        if before is not None:
            return before
        why = error.strerror if isinstance(error, OSError) else "it is not a token"
        raise CredentialsError(
            f"Cannot read the token in {printable(path)}: {why}. Check the path and the permissions."
        ) from None
    if text and text.isprintable():
        return Secret(text)
    if before is not None:
        return before
    raise CredentialsError(f"{printable(path)} has no token. Write one into it.")


def _stamp_of(*paths: str) -> _Stamp:
    return tuple(_one_stamp(path) if path else None for path in paths)


def _one_stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (each request looks; this is quick)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
