"""A small token issuer for development: discovery and keys over HTTPS, and tokens signed with the folder's key."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeAlias

import structlog

from authplane.core.values import dataclass
from authplane.devkit.identities.signing import SigningKey
from authplane.devkit.local.dev_folder import (
    LIFETIME,
    CertificateFiles,
    DevFolder,
    DevFolderError,
    note_url,
    prepare_issuer,
    read_signing_key,
    read_url,
    write_workload,
)
from authplane.runtime.clock import now as clock
from authplane.runtime.run_until_stopped import Stop, run_program
from authplane.runtime.servers.http_server import HttpLimits, HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import TcpAddress, TlsPaths

log: Final = structlog.stdlib.get_logger()

DEV_FOLDER: Final = Path(".authplane/dev")
DEV_ADDRESS: Final = TcpAddress(host="127.0.0.1", port=9445)
WARNING: Final = "development issuer, not for production: anyone who can read its folder can sign tokens"

_CONFIGURATION: Final = "/.well-known/openid-configuration"
_KEYS: Final = "/jwks"
_LIMITS: Final = HttpLimits(largest_body=0, largest_head=16 * 1024, connections=100)

Documents: TypeAlias = Mapping[str, bytes]
"""JSON texts by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerPlan:
    """Address and folder of a development issuer."""

    folder: Path = DEV_FOLDER
    address: TcpAddress = DEV_ADDRESS
    name: str = ""
    """The host in its URL and certificate; empty is the host that it listens on."""

    @property
    def host(self) -> str:
        """The host in its URL."""
        return self.name or self.address.host or "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningIssuer:
    """A running development issuer."""

    url: str
    """``iss`` of tokens and ``issuerUrl`` of policies."""
    ca_file: Path
    """``caFile`` of the issuer's settings."""
    folder: DevFolder


@asynccontextmanager
async def serve_issuer(plan: IssuerPlan, now: datetime) -> AsyncGenerator[RunningIssuer]:
    """Serve a development issuer while the block runs; raises `DevFolderError` or a `ListenError`.

    Creates missing keys in the folder.
    """
    folder = prepare_issuer(plan.folder, plan.host, now)
    key = _signing_key(folder)
    tls = TlsPaths(certificate=str(folder.certificate), key=str(folder.key))
    documents: dict[str, bytes] = {}
    async with serve_http(plan.address, partial(_publish, documents), limits=_LIMITS, tls=tls) as bound:
        # The documents contain the port. No request comes before this: nothing was awaited since the port was bound.
        url = _url(plan.host, bound.port if isinstance(bound, TcpAddress) else plan.address.port)
        documents |= build_documents(url, key)
        note_url(folder, url)
        yield RunningIssuer(url=url, ca_file=folder.ca, folder=folder)


def run_issuer(plan: IssuerPlan, now: datetime, tell: Callable[[RunningIssuer], None]) -> None:
    """Serve a development issuer until the program is stopped."""

    async def program(stop: Stop) -> None:
        async with serve_issuer(plan, now) as running:
            log.warning(WARNING, issuer=running.url)
            tell(running)
            await stop.asked()

    run_program(program)


def build_documents(url: str, key: SigningKey) -> Documents:
    """Return the documents of an issuer, by path."""
    configuration = {
        "issuer": url,
        "jwks_uri": f"{url}{_KEYS}",
        "response_types_supported": ["none"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "service_documentation": WARNING,
    }
    return {_CONFIGURATION: json.dumps(configuration).encode(), _KEYS: key.key_set()}


def dev_token(folder: Path, claims: Mapping[str, Any], *, now: datetime, lifetime: timedelta, issuer: str = "") -> str:
    """Sign claims with the folder's key; raises `DevFolderError` if the folder has no issuer.

    Without ``issuer``, ``iss`` is the last URL of the folder's issuer.
    """
    place = DevFolder(folder)
    key = _signing_key(place)
    url = issuer or read_url(place)
    if not url:
        raise DevFolderError(
            f"The issuer in {folder} has never run, so authplane does not know its URL. Set --issuer to the URL."
        )
    issued = int(now.timestamp())
    times = {"iat": issued, "exp": int((now + lifetime).timestamp())}
    if lifetime < timedelta():
        # An expired token was issued before its end.
        times["iat"] = times["exp"] - 60
    return key.sign({"iss": url, **times, **claims})


def dev_workload(
    folder: Path, spiffe_id: str, name: str, *, now: datetime, lifetime: timedelta = LIFETIME
) -> CertificateFiles:
    """Write a client certificate for a workload and the CA that signed it; raises `DevFolderError`."""
    return write_workload(folder, spiffe_id, name, now=now, lifetime=lifetime)


def _publish(documents: Documents, request: HttpRequest) -> HttpResponse:
    status, body = HTTPStatus.OK, documents.get(request.target.partition("?")[0])
    if body is None:
        status, body = HTTPStatus.NOT_FOUND, b"{}"
    if request.method not in {"GET", "HEAD"}:
        status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"{}"
    # RFC 9110 §6.6.1: an origin server with a clock sends Date. `authplane doctor` compares clocks by it.
    date = format_datetime(clock(), usegmt=True)
    headers = (("content-type", "application/json"), ("cache-control", "max-age=60"), ("date", date))
    return HttpResponse(status=status, headers=headers, body=body)


def _signing_key(folder: DevFolder) -> SigningKey:
    try:
        return SigningKey.of(read_signing_key(folder))
    except ValueError as error:
        raise DevFolderError(f"{folder.signing_key} is not a private key. Delete it to get a new one.") from error


def _url(host: str, port: int) -> str:
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
