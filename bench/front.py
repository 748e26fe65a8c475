"""Checks per second of the pyvoy front, beside a bare gRPC server and a bare ASGI application in the same run.

Servers are on one core and the load is on another. All are asked the same, over as many connections, one after the
other in each of several short rounds, and the best round of each counts: so what else the machine does falls on all of
them. The bare servers run as their authors run them; beside them are the same with threads scheduled as ours are.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, NamedTuple

from bench.h2load import cores, load, message, require_allowed
from bench.processes import seconds_used, started_here
from bench.servers import (
    CREDENTIALS,
    bare_grpcio,
    bare_grpcio_in_batches,
    bare_pyvoy,
    bare_pyvoy_in_batches,
    our_htpasswd,
    our_testserver,
)

_CHECKS: Final = 10_000
_ROUNDS: Final = 6

_SERVERS: Final[dict[str, Callable[[], AbstractAsyncContextManager[int]]]] = {
    "grpcio": bare_grpcio,
    "pyvoy": bare_pyvoy,
    "grpcio in batches": bare_grpcio_in_batches,
    "pyvoy in batches": bare_pyvoy_in_batches,
    "testserver": our_testserver,
    "htpasswd": our_htpasswd,
}


class _Best(NamedTuple):
    """The best of a few rounds."""

    rate: float
    """Checks per second."""
    cost: float
    """Seconds of processor time a check: on a machine that does other things as well, this tells more."""


async def main() -> None:
    """Load them in turn, a few times, and compare the best of each."""
    with cores() as core:
        if core is None:
            return
        best = await _best(core)
    _compare(best, "testserver", "grpcio", 4)
    _compare(best, "testserver", "pyvoy", 0.7)
    _compare(best, "testserver", "grpcio in batches")
    _compare(best, "testserver", "pyvoy in batches")
    _compare(best, "htpasswd", "testserver", 0.6)


def _compare(best: dict[str, _Best], name: str, other: str, limit: float | None = None) -> None:
    one, two = best[name], best[other]
    aim = "" if limit is None else f" (limit {limit})"
    print(
        f"  {name} {one.rate:.0f} checks/s, {one.rate / two.rate:.2f} times the {two.rate:.0f} of {other}{aim}; "
        f"by processor time, {one.cost * 1e6:.0f} and {two.cost * 1e6:.0f} µs a check, "
        f"{two.cost / one.cost:.2f} times",
        flush=True,
    )


async def _best(core: int) -> dict[str, _Best]:
    """Load all servers in each round, and return the best round of each."""
    rounds: dict[str, list[_Best]] = {name: [] for name in _SERVERS}
    async with AsyncExitStack() as stack:
        ports, processes = {}, {}
        for name, server in _SERVERS.items():
            before = started_here()
            ports[name] = await stack.enter_async_context(server())
            processes[name] = started_here() - before
        asked = {name: message(authorization=CREDENTIALS) if name == "htpasswd" else message() for name in ports}
        for name, port in ports.items():
            await require_allowed(port, asked[name])
        for name in list(ports) * _ROUNDS:
            used = seconds_used(processes[name])
            rate = (await load(ports[name], core, asked[name], _CHECKS)).rate
            rounds[name].append(_Best(rate, (seconds_used(processes[name]) - used) / _CHECKS))
    return {
        name: _Best(max(each.rate for each in all_), min(each.cost for each in all_)) for name, all_ in rounds.items()
    }
