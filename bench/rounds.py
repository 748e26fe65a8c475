"""Sends a call to several servers in turn, in many short rounds, and compares their rates and processor times."""

import asyncio
from statistics import median
from typing import Final, NamedTuple

from bench.h2load import EIGHT, Connections, Posted, send
from bench.native_site import Site
from bench.processes import seconds_used

_PATIENCE: Final = 120
_REQUESTS: Final = 3_000
_NATIVE: Final = 2e-5
"""Seconds of the policy server per request: with less it got no check."""


class Call(NamedTuple):
    """What is sent, and to whom."""

    posted: Posted
    site: Site
    connections: Connections = EIGHT


class Cost(NamedTuple):
    """The cost of one kind of call."""

    rates: list[float]
    """Requests per second, by round."""
    gateway: list[float]
    """Seconds of processor time per request in the server that the client calls, by round."""
    deciding: list[float]
    """Seconds of processor time per request in the authorization service that this server calls, by round."""

    @property
    def least(self) -> float:
        """Seconds of processor time per request in the best round."""
        return min(one + other for one, other in zip(self.gateway, self.deciding, strict=True))


async def until_allowed(call: Call, core: int) -> None:
    """Wait until the server answers with 2xx."""
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                await send(call.posted, core, 16)
            except RuntimeError:
                await asyncio.sleep(0.2)
            else:
                return


async def until_native(call: Call, core: int) -> None:
    """Wait until Envoy has the keys of the issuer, and decides without the policy server."""
    async with asyncio.timeout(_PATIENCE):
        cost = _NATIVE
        while cost >= _NATIVE:
            used = seconds_used(call.site.deciding)
            await send(call.posted, core, _REQUESTS)
            cost = (seconds_used(call.site.deciding) - used) / _REQUESTS


async def one_round(call: Call, cost: Cost, core: int, requests: int) -> None:
    """Send so many requests, and add what they cost."""
    before = [seconds_used(each) for each in (call.site.gateway, call.site.deciding)]
    cost.rates.append((await send(call.posted, core, requests, connections=call.connections)).rate)
    after = [seconds_used(each) for each in (call.site.gateway, call.site.deciding)]
    spent = [(now - then) / requests for now, then in zip(after, before, strict=True)]
    cost.gateway.append(spent[0])
    cost.deciding.append(spent[1])


def compare(costs: dict[str, Cost], name: str, other: str, limit: float | None = None) -> None:
    """Print how many times cheaper and faster one is than the other, with both sides."""
    one, two = costs[name], costs[other]
    aim = "" if limit is None else f" (limit {limit})"
    middle = median(rate / beside_it for rate, beside_it in zip(one.rates, two.rates, strict=True))
    print(
        f"  {name} against {other}: {two.least / one.least:.2f} times by processor time{aim}, "
        f"{two.least * 1e6:.0f} / {one.least * 1e6:.0f} µs; {max(one.rates) / max(two.rates):.2f} times by the best "
        f"rounds, {max(one.rates):.0f} / {max(two.rates):.0f} requests/s; {middle:.2f} times in the median round",
        flush=True,
    )
