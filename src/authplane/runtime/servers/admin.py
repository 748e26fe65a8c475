"""The admin port: liveness, readiness and metrics of the process. It shows no secrets."""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPMethod, HTTPStatus
from ipaddress import ip_address
from typing import Final, Protocol, TypeAlias, assert_never

import structlog
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from authplane.core.problems import printable
from authplane.core.values import dataclass
from authplane.runtime.child_processes import place_of
from authplane.runtime.servers.admin_hosts import KnownHosts
from authplane.runtime.servers.http_server import HttpLimits, HttpRequest, HttpResponse, Respond, serve_http
from authplane.runtime.servers.listen import Address, AddressTakenError, ListenError, TcpAddress, UnixAddress, claim

_log: Final = structlog.stdlib.get_logger()

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

ADMIN_ADDRESS: Final = TcpAddress(host="127.0.0.1", port=9091)
"""The default of authorization services."""
CONTROL_ADDRESS: Final = TcpAddress(host="127.0.0.1", port=9095)
"""The default of the control plane: both can run on one machine."""

Obstacle: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns why a part is not ready; an empty string if it is ready."""


class Counted(Protocol):
    """A source of metrics: one process, or several."""

    def text(self) -> bytes | Awaitable[bytes]:
        """Write all metrics, in the form of `CONTENT_TYPE`."""


_LIMITS: Final = HttpLimits(largest_body=0, largest_head=8 * 1024, connections=50)
_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSettings:
    """Where admin pages are served."""

    address: Address
    public: bool = False
    """Allow an address that other machines can reach. They are not authenticated."""
    names: tuple[str, ...] = ()
    """Host names that requests may use, besides loopback hosts and the address."""


class AdminExposedError(ListenError):
    """The admin port would be open to other machines, and the settings do not allow that."""


def serve_admin(settings: AdminSettings, pages: Respond) -> AbstractAsyncContextManager[Address]:
    """Serve `admin_pages` while the block runs; yields the address with the port that was really taken.

    A request must name a loopback host, the address or one of the names; others get 421. Raises `AdminExposedError` for
    an address that other machines can reach unless the settings are public, and any `ListenError` if the address cannot
    be had.
    """
    address = settings.address
    if not settings.public and not _is_local(address):
        raise AdminExposedError(
            f"Refusing to serve /metrics on {address}: other machines could read it without authentication."
            " Use an address such as 127.0.0.1:9091, or add --metrics-public."
        )
    known = KnownHosts(address, settings.names)

    async def respond(request: HttpRequest) -> HttpResponse:
        if not known.knows(request.header("host")):
            return _page(
                HTTPStatus.MISDIRECTED_REQUEST, "The Host header is unknown. Add the host with --metrics-host.\n"
            )
        answer = pages(request)
        return answer if isinstance(answer, HttpResponse) else await answer

    return _listening(address, respond)


@asynccontextmanager
async def _listening(address: Address, respond: Respond) -> AsyncGenerator[Address]:
    try:
        claim(address)
    except AddressTakenError as error:
        remedy = "Set --metrics-address to another address, or to '' to serve no metrics."
        raise AddressTakenError(address, error.why, remedy) from error
    async with serve_http(address, respond, limits=_LIMITS) as bound:
        yield bound


def admin_pages(metrics: Counted, parts: Mapping[str, Obstacle]) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
    """Build the pages ``/healthz``, ``/readyz`` and ``/metrics``."""

    async def health() -> HttpResponse:
        return _page(HTTPStatus.OK, "alive\n")

    async def counts() -> HttpResponse:
        text = metrics.text()
        return _response(HTTPStatus.OK, text if isinstance(text, bytes) else await text, CONTENT_TYPE)

    pages: Mapping[str, Callable[[], Awaitable[HttpResponse]]] = {
        "/healthz": health,
        "/readyz": lambda: _readiness(parts),
        "/metrics": counts,
    }

    async def respond(request: HttpRequest) -> HttpResponse:
        page = pages.get(request.target.partition("?")[0])
        if page is None:
            return _page(HTTPStatus.NOT_FOUND, "This page does not exist. Supported: /healthz, /readyz, /metrics.\n")
        if request.method not in {HTTPMethod.GET, HTTPMethod.HEAD}:
            return _page(HTTPStatus.METHOD_NOT_ALLOWED, "Use GET or HEAD.\n", ("allow", "GET, HEAD"))
        return await page()

    return respond


def _is_local(address: Address) -> bool:
    """Tell whether only this machine can reach an address, for every IP address that its name resolves to."""
    match address:
        case UnixAddress():
            return True
        case TcpAddress(host=""):
            return False
        case TcpAddress(host=host, port=port):
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError:
                # Listening fails with a better message if the name does not resolve.
                return True
            return all(ip_address(str(where[0]).partition("%")[0]).is_loopback for *_, where in found)
        case _:
            assert_never(address)


async def _readiness(parts: Mapping[str, Obstacle]) -> HttpResponse:
    obstacles = [(name, obstacle) for name, part in sorted(parts.items()) if (obstacle := await _obstacle(name, part))]
    if not obstacles:
        return _page(HTTPStatus.OK, "ready\n")
    lines = "".join(f"{printable(name)}: {printable(obstacle)}\n" for name, obstacle in obstacles)
    return _page(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready\n{lines}")


async def _obstacle(name: str, part: Obstacle) -> str:
    try:
        told = part()
        return told if isinstance(told, str) else await told
    except Exception as error:  # noqa: BLE001 (a part that fails is not ready, and the page still shows the other parts)
        _log.error("readiness check failed", part=name, error=place_of(error))
        return "The readiness check failed."


def _page(status: HTTPStatus, text: str, *headers: tuple[str, str]) -> HttpResponse:
    return _response(status, text.encode(), _TEXT, *headers)


def _response(status: HTTPStatus, body: bytes, content_type: str, *headers: tuple[str, str]) -> HttpResponse:
    fixed = (("content-type", content_type), ("cache-control", "no-store"), ("x-content-type-options", "nosniff"))
    return HttpResponse(status=status, headers=(*fixed, *headers), body=body)
