"""Counts of decisions: those of Envoys and of policy servers together."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import structlog

from authplane.authserver.records.runtime.metrics import Metrics
from authplane.controlplane.serving.runtime.control_socket import NotLiveError, live_address
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.envoy_stats import STATS, StatsInvalidError, parse_envoy_stats
from authplane.devkit.diagnosis.server_counts import METRICS, MetricsInvalidError, parse_server_counts
from authplane.devkit.diagnosis.tallies import By, Tally, add_up
from authplane.runtime.clients.ask_page import NotAnsweredError, ask_page
from authplane.runtime.envoy_process import Envoy
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import Address, ListenError, UnixAddress

log: Final = structlog.stdlib.get_logger()

_PART: Final = "-decisions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """A program whose counts are missing."""

    by: By
    address: str
    why: str
    """The rest of a sentence that begins with the program and its address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The counts of all programs that answered."""

    tallies: tuple[Tally, ...] = ()
    silent: tuple[Silent, ...] = ()


def count_decisions(envoys: Iterable[Address], servers: Iterable[Address]) -> Counted:
    """Read the counts of all programs and add them up; name the programs that do not answer."""
    tallies: list[Tally] = []
    silent: list[Silent] = []
    asked: list[tuple[By, Address, str, Callable[[bytes], tuple[Tally, ...]]]]
    asked = [(By.ENVOY, each, STATS, parse_envoy_stats) for each in envoys]
    asked += [(By.SERVER, each, METRICS, parse_server_counts) for each in servers]
    for by, address, target, parse in asked:
        try:
            tallies += parse(ask_page(address, target))
        except (NotAnsweredError, StatsInvalidError, MetricsInvalidError) as error:
            silent.append(Silent(by=by, address=str(address), why=str(error)))
    return Counted(tallies=add_up(tallies), silent=tuple(silent))


def find_counts(root: Path) -> UnixAddress:
    """Find the socket on which `answer_counts` answers for a folder; raises `NotLiveError`."""
    address = live_address(root, _PART)
    if not Path(address.path).exists():
        raise NotLiveError(
            f'authplane run does not serve "{root}". Set --envoy and --server to the addresses of Envoy and the policy'
            " server."
        )
    return address


@asynccontextmanager
async def answer_counts(root: Path, envoy: Envoy, metrics: Metrics) -> AsyncGenerator[None]:
    """Let ``authplane decisions`` find what runs for a folder, while the block runs; it has no ports for that."""

    async def respond(request: HttpRequest) -> HttpResponse:
        if request.target == METRICS:
            return HttpResponse(status=200, body=metrics.text())
        if request.target != STATS:
            # The rest of Envoy's admin interface is not for this socket.
            return HttpResponse(status=404)
        try:
            reply = await envoy.admin(STATS)
        except OSError:
            return HttpResponse(status=503)
        return HttpResponse(status=reply.status, body=reply.content)

    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(serve_http(live_address(root, _PART), respond))
        except (ListenError, NotLiveError) as error:
            log.warning("authplane decisions will not see this gateway", why=str(error))
        yield
