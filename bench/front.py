"""Checks per second of the pyvoy front, beside a bare gRPC server and a bare ASGI application in the same run.

Servers are on one core and the load is on another. All are asked the same, over as many connections, one after the
other in each of many short rounds: so what else the machine does falls on all of them. The bare servers run as their
authors run them; beside them are the same with threads scheduled as ours are.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from statistics import median
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

_CHECKS: Final = 4_000
_ROUNDS: Final = 15

_SERVERS: Final[dict[str, Callable[[], AbstractAsyncContextManager[int]]]] = {
    "grpcio": bare_grpcio,
    "pyvoy": bare_pyvoy,
    "grpcio in batches": bare_grpcio_in_batches,
    "pyvoy in batches": bare_pyvoy_in_batches,
    "testserver": our_testserver,
    "htpasswd": our_htpasswd,
}


class _Measured(NamedTuple):
    """What one server did."""

    rates: Sequence[float]
    """Checks per second, by round."""
    cost: float
    """Seconds of processor time a check: on a machine that does other things as well, this tells more."""


async def main() -> None:
    """Load them in turn, many times, and compare."""
    with cores() as core:
        if core is None:
            return
        measured = await _measure(core)
    _compare(measured, "testserver", "grpcio", 4)
    _compare(measured, "testserver", "pyvoy", 0.7)
    _compare(measured, "testserver", "grpcio in batches")
    _compare(measured, "testserver", "pyvoy in batches")
    _compare(measured, "htpasswd", "testserver", 0.6)


def _compare(measured: dict[str, _Measured], name: str, other: str, limit: float | None = None) -> None:
    """Compare the best rounds of two servers, the rounds one by one, and the processor time of all rounds."""
    one, two = measured[name], measured[other]
    best, best_other = max(one.rates), max(two.rates)
    middle = median(rate / beside for rate, beside in zip(one.rates, two.rates, strict=True))
    aim = "" if limit is None else f" (limit {limit})"
    print(
        f"  {name} {best:.0f} checks/s, {best / best_other:.2f} times the {best_other:.0f} of {other}{aim}; "
        f"{middle:.2f} times in the median round; by processor time, {one.cost * 1e6:.0f} and {two.cost * 1e6:.0f} µs "
        f"a check, {two.cost / one.cost:.2f} times",
        flush=True,
    )


async def _measure(core: int) -> dict[str, _Measured]:
    rates: dict[str, list[float]] = {name: [] for name in _SERVERS}
    async with AsyncExitStack() as stack:
        ports, processes = {}, {}
        for name, server in _SERVERS.items():
            before = started_here()
            ports[name] = await stack.enter_async_context(server())
            processes[name] = started_here() - before
        asked = {name: message(authorization=CREDENTIALS) if name == "htpasswd" else message() for name in ports}
        for name, port in ports.items():
            await require_allowed(port, asked[name])
            await load(port, core, asked[name], _CHECKS)
        # A server that is not asked does nothing, so that what it uses from here on is for its checks.
        used = {name: seconds_used(processes[name]) for name in ports}
        for name in list(ports) * _ROUNDS:
            rates[name].append((await load(ports[name], core, asked[name], _CHECKS)).rate)
        return {
            name: _Measured(rates[name], (seconds_used(processes[name]) - used[name]) / (_CHECKS * _ROUNDS))
            for name in ports
        }
