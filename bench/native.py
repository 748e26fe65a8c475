"""Calls of MCP tools through Envoy: without authorization, decided in Envoy, by our policy server and by a bare one.

The gateway and whoever it asks are on one core; the load, the server behind the gateway and what encrypts for clients
are on another. Everything is loaded in turn, in many short rounds, with each of two releases of Envoy.
"""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tests.support.envoy.releases import VERSIONS
from tests.support.ports import free_port

from authplane.devkit.local.dev_issuer import IssuerPlan, serve_issuer
from authplane.runtime.envoy_process import envoy_binary
from authplane.runtime.servers.listen import TcpAddress
from bench import native_scale
from bench.h2load import Measured, Posted, cores, send
from bench.native_readers import readers
from bench.native_site import Ports, Site, alone, beside, calls, documents, policy_server, running
from bench.processes import seconds_used
from bench.servers import bare_grpcio_processes

_REQUESTS: Final = 3_000
_ROUNDS: Final = 8
_RATE: Final = 1_000
_PATIENCE: Final = 30
_ALONE: Final = "Envoy alone"
_READ: Final = "read only"
_READ_TOO: Final = ("open", "tools", "claims")
"""What is sent to an Envoy that reads and does not judge."""
_NATIVE: Final = 5e-6
"""Seconds of the policy server for a request: with less it was not asked."""


class _Call(NamedTuple):
    """What is sent, and to whom."""

    posted: Posted
    site: Site


class _Cost(NamedTuple):
    """What one kind of call took."""

    rates: list[float]
    """Requests per second, by round."""
    gateway: list[float]
    """Seconds of processor time a request in Envoy, by round."""
    deciding: list[float]
    """The same of whom Envoy asks."""

    @property
    def least(self) -> float:
        """Seconds of processor time a request in the best round."""
        return min(one + other for one, other in zip(self.gateway, self.deciding, strict=True))


async def main() -> None:
    """Measure how many calls one core takes, and how long they take at a fixed rate."""
    with cores() as core:
        if core is None:
            return
        for version in VERSIONS:
            print(f"  with Envoy {version.number}:", flush=True)
            await _measure(core, version.binary or envoy_binary())
        await native_scale.main(core)


async def _measure(core: int, binary: Path) -> None:
    async with AsyncExitStack() as stack:
        sent = await _start(stack, core, Path(stack.enter_context(TemporaryDirectory())), binary)
        for call in sent.values():
            await _until_allowed(call, core)
        await _until_native(sent["claims, native"], core)
        costs = {name: _Cost([], [], []) for name in sent}
        for name in list(sent) * _ROUNDS:
            await _round(sent[name], costs[name], core)
        _tell(costs)
        for name, call in sent.items():
            _tell_latency(name, await send(call.posted, core, _RATE * 3, rate=_RATE))


async def _start(stack: AsyncExitStack, core: int, root: Path, binary: Path) -> dict[str, _Call]:
    """Run a gateway with our policy server, one with a bare server instead, and two Envoys without rules."""
    plan = IssuerPlan(folder=root / "dev", address=TcpAddress(host="127.0.0.1", port=0))
    issuer = await stack.enter_async_context(serve_issuer(plan, datetime.now(UTC)))
    both = {name: Ports(free_port(), free_port(), free_port()) for name in ("ours", "bare")}
    upstream = await stack.enter_async_context(beside(core, root, both.values()))
    bare, bare_processes = await stack.enter_async_context(bare_grpcio_processes())
    servers = {"ours": f"unix:{root}/policy.sock", "bare": f"127.0.0.1:{bare}"}
    sites = {}
    for name, ports in both.items():
        made = root / name
        made.mkdir()
        texts = documents(upstream, ports, servers[name], issuer)
        (made / "gateway.yaml").write_text("\n---\n".join(texts), encoding="utf-8")
        deciding = bare_processes
        if name == "ours":
            deciding = await stack.enter_async_context(policy_server(made, servers[name]))
        sites[name] = Site(ports, await stack.enter_async_context(running(made, ports, binary)), deciding)
    single = await stack.enter_async_context(alone(root, binary))
    reading = await stack.enter_async_context(readers(root, upstream, issuer, binary))
    read = calls(reading.ports, root / "dev")["open"]
    sent = {name: _Call(each, sites["ours"]) for name, each in calls(both["ours"], root / "dev").items()}
    sent[_ALONE] = _Call(calls(single.ports, root / "dev")["open"], single)
    for name in _READ_TOO:
        url = f"http://127.0.0.1:{reading.ports.plain}/{name}"
        sent[f"{name}, {_READ}"] = _Call(read._replace(url=url), reading)
    return sent | {"claims, bare": _Call(calls(both["bare"], root / "dev")["claims, asked"], sites["bare"])}


async def _until_allowed(call: _Call, core: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while True:
            try:
                await send(call.posted, core, 16)
            except RuntimeError:
                await asyncio.sleep(0.2)
            else:
                return


async def _until_native(call: _Call, core: int) -> None:
    """Wait until Envoy has the keys of the issuer, and asks nobody any more."""
    async with asyncio.timeout(_PATIENCE):
        cost = _NATIVE
        while cost >= _NATIVE:
            used = seconds_used(call.site.deciding)
            await send(call.posted, core, _REQUESTS)
            cost = (seconds_used(call.site.deciding) - used) / _REQUESTS


async def _round(call: _Call, cost: _Cost, core: int) -> None:
    before = [seconds_used(each) for each in (call.site.gateway, call.site.deciding)]
    cost.rates.append((await send(call.posted, core, _REQUESTS)).rate)
    after = [seconds_used(each) for each in (call.site.gateway, call.site.deciding)]
    spent = [(now - then) / _REQUESTS for now, then in zip(after, before, strict=True)]
    cost.gateway.append(spent[0])
    cost.deciding.append(spent[1])


def _tell(costs: dict[str, _Cost]) -> None:
    for name, cost in costs.items():
        print(
            f"  {name}: {max(cost.rates):.0f} requests/s; processor time a request {cost.least * 1e6:.0f} µs, of which "
            f"{median(cost.deciding) * 1e6:.0f} µs outside of the gateway",
            flush=True,
        )
    for name, without in (("tools", "open, TLS"), ("claims", "open")):
        native, asked = (costs[f"{name}, {how}"].least - costs[without].least for how in ("native", "asked"))
        single = costs[_ALONE].least
        print(
            f"  {name}: deciding takes {native * 1e6:.0f} µs in Envoy and {asked * 1e6:.0f} µs with the question, "
            f"{asked / native:.1f} times as long. With a server that costs nothing, an Envoy that answers by itself, "
            f"native calls come to {single / (single + native):.2f} of open ones and to "
            f"{(single + asked) / (single + native):.2f} times those that are asked about",
            flush=True,
        )
        reading = costs[f"{name}, {_READ}"].least - costs[f"open, {_READ}"].least
        bound = costs[f"{name}, asked"].least / (costs[without].least + reading)
        print(
            f"  {name}: the filters that read for rules take {reading * 1e6:.0f} µs. With rules that cost nothing, "
            f"native calls would come to {bound:.2f} times those that are asked about",
            flush=True,
        )
    _compare(costs, "tools, native", "open, TLS", 0.4)
    _compare(costs, "claims, native", "open", 0.4)
    _compare(costs, "tools, native", "tools, asked", 2.5)
    _compare(costs, "claims, native", "claims, asked", 2.5)
    _compare(costs, "claims, asked", "claims, bare")


def _compare(costs: dict[str, _Cost], name: str, other: str, limit: float | None = None) -> None:
    one, two = costs[name], costs[other]
    aim = "" if limit is None else f" (limit {limit})"
    middle = median(rate / beside_it for rate, beside_it in zip(one.rates, two.rates, strict=True))
    print(
        f"  {name} against {other}: {two.least / one.least:.2f} times by processor time{aim}, "
        f"{max(one.rates) / max(two.rates):.2f} times by the best rounds, {middle:.2f} times in the median round",
        flush=True,
    )


def _tell_latency(name: str, measured: Measured) -> None:
    print(
        f"  {name} at {measured.rate:.0f} requests/s: median {measured.quantile(0.5) * 1000:.2f} ms, "
        f"p99 {measured.quantile(0.99) * 1000:.2f} ms",
        flush=True,
    )
