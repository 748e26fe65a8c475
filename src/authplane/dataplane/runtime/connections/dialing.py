"""Channels to services whose credentials a bootstrap names."""

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias, assert_never

import grpc
import grpc.aio
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.dataplane.runtime.connections.jwt_file import JwtFileCredentials
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.xds.bootstrap.credentials import GoogleDefault, IdentityFiles, Insecure, ServiceCredentials, TlsFiles

Options: TypeAlias = Sequence[tuple[str, Any]]

_MOST_BYTES: Final = 1024 * 1024
_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"


class CredentialsUnusableError(Exception):
    """What a channel needs for its credentials is missing or broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pem:
    roots: bytes | None = None
    key: Secret[bytes] | None = None
    chain: bytes | None = None


class Dialer:
    """Opens channels to one service, each with the current certificates and tokens of its files.

    grpcio's channels keep the certificates they were opened with: the owner of a channel calls `changed` from time to
    time, and opens another channel if it returns true. Tokens are renewed without that.
    """

    def __init__(self, target: str, credentials: ServiceCredentials, *, clock: Callable[[], float] = monotonic) -> None:
        self.target: Final = target
        self._channel = credentials.channel
        self._tokens = [JwtFileCredentials(TokenSource(each.path)) for each in credentials.calls]
        self._clock = clock
        self._used: _Pem | None = None
        self._looked = clock()

    def open(self, options: Options = ()) -> grpc.Channel:
        """Open a synchronous channel; raises `CredentialsUnusableError`."""
        credentials = self._credentials()
        if credentials is None:
            channel = grpc.insecure_channel(self.target, tuple(options))
        else:
            channel = grpc.secure_channel(self.target, credentials, tuple(options))
        # The credentials of calls are attached one by one: so each failure has its own status.
        return grpc.intercept_channel(channel, *(each.interceptor() for each in self._tokens))

    async def open_aio(self, options: Options = ()) -> grpc.aio.Channel:
        """Open an asynchronous channel; raises `CredentialsUnusableError`."""
        credentials = await asyncio.to_thread(self._credentials)
        interceptors = [one for each in self._tokens for one in each.aio_interceptors()]
        if credentials is None:
            return grpc.aio.insecure_channel(self.target, tuple(options), interceptors=interceptors)
        return grpc.aio.secure_channel(self.target, credentials, tuple(options), interceptors=interceptors)

    def changed(self) -> bool:
        """Tell whether a channel opened now would show or trust other certificates than the last one.

        The files are looked at as often as the bootstrap says. Files that cannot be used have not changed: what was
        read before stays in force.
        """
        if not isinstance(self._channel, TlsFiles) or self._clock() < self._looked + self._channel.refresh:
            return False
        self._looked = self._clock()
        try:
            return _read_pem(self._channel) != self._used
        except CredentialsUnusableError:
            return False

    def _credentials(self) -> grpc.ChannelCredentials | None:
        """Return the credentials of a channel; None for plain text."""
        match self._channel:
            case Insecure():
                return None
            case GoogleDefault():
                return _google_default()
            case TlsFiles():
                self._looked = self._clock()
                self._used = used = _read_pem(self._channel)
                return grpc.ssl_channel_credentials(
                    used.roots, None if used.key is None else used.key.reveal(), used.chain
                )
            case _:
                assert_never(self._channel)


def _read_pem(files: TlsFiles) -> _Pem:
    roots = None if files.ca is None else _checked_roots(files.ca)
    if files.identity is None:
        return _Pem(roots=roots)
    return _checked_identity(files.identity, roots)


def _checked_roots(path: str) -> bytes:
    data = _read(path)
    try:
        x509.load_pem_x509_certificates(data)
    except ValueError:
        raise CredentialsUnusableError(f"{path} contains no CA certificate in PEM format. Replace the file.") from None
    return data


def _checked_identity(files: IdentityFiles, roots: bytes | None) -> _Pem:
    chain, key = _read(files.certificate), _read(files.private_key)
    try:
        owner = x509.load_pem_x509_certificates(chain)[0].public_key()
        # An encrypted key is a TypeError.
        fits = load_pem_private_key(key, password=None).public_key() == owner
    except (ValueError, TypeError, UnsupportedAlgorithm):
        fits = False
    if not fits:
        raise CredentialsUnusableError(
            f"{files.certificate} and {files.private_key} are not a certificate and its key. Replace the files."
        )
    return _Pem(roots=roots, key=Secret(key), chain=chain)


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise CredentialsUnusableError(
            f"Cannot read {path}: {error.strerror}. Check the path and its permissions."
        ) from None


def _google_default() -> grpc.ChannelCredentials:
    try:
        auth = import_module("google.auth")
        transport = import_module("google.auth.transport.grpc")
        requests = import_module("google.auth.transport.requests")
    except ImportError:
        raise CredentialsUnusableError(
            "google_default credentials need another package. Install google-auth[requests]."
        ) from None
    try:
        found, _ = auth.default(scopes=[_GOOGLE_SCOPE])
    except auth.exceptions.GoogleAuthError as error:
        raise CredentialsUnusableError(
            f"Cannot load google_default credentials: {type(error).__name__}. Set GOOGLE_APPLICATION_CREDENTIALS."
        ) from None
    plugin = transport.AuthMetadataPlugin(found, requests.Request())
    return grpc.composite_channel_credentials(grpc.ssl_channel_credentials(), grpc.metadata_call_credentials(plugin))
