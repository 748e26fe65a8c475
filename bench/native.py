"""Calls of MCP tools through Envoy: without authorization, decided in Envoy, by our policy server and by a bare one.

The gateway and whoever it asks are on one core; the load, the server behind the gateway and what encrypts for clients
are on another. Everything is loaded in turn, in many short rounds, with each of two releases of Envoy.
"""

from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.envoy.releases import VERSIONS
from tests.support.ports import free_port

from authplane.devkit.local.dev_issuer import IssuerPlan, serve_issuer
from authplane.runtime.envoy_process import envoy_binary
from authplane.runtime.servers.listen import TcpAddress
from bench import native_scale
from bench.h2load import Measured, cores, send
from bench.native_readers import readers
from bench.native_site import Ports, Site, alone, beside, calls, documents, policy_server, running
from bench.rounds import Call, Cost, compare, one_round, until_allowed, until_native
from bench.servers import bare_grpcio_processes

_REQUESTS: Final = 3_000
_ROUNDS: Final = 8
_RATE: Final = 1_000
_ALONE: Final = "Envoy alone"
_READ: Final = "read only"
_READ_TOO: Final = ("open", "tools", "claims")
"""What is sent to an Envoy that reads and does not judge."""


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
            await until_allowed(call, core)
        await until_native(sent["claims, native"], core)
        costs = {name: Cost([], [], []) for name in sent}
        for name in list(sent) * _ROUNDS:
            await one_round(sent[name], costs[name], core, _REQUESTS)
        _tell(costs)
        for name, call in sent.items():
            _tell_latency(name, await send(call.posted, core, _RATE * 3, rate=_RATE))


async def _start(stack: AsyncExitStack, core: int, root: Path, binary: Path) -> dict[str, Call]:
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
    sent = {name: Call(each, sites["ours"]) for name, each in calls(both["ours"], root / "dev").items()}
    sent[_ALONE] = Call(calls(single.ports, root / "dev")["open"], single)
    for name in _READ_TOO:
        url = f"http://127.0.0.1:{reading.ports.plain}/{name}"
        sent[f"{name}, {_READ}"] = Call(read._replace(url=url), reading)
    return sent | {"claims, bare": Call(calls(both["bare"], root / "dev")["claims, call-out"], sites["bare"])}


def _tell(costs: dict[str, Cost]) -> None:
    for name, cost in costs.items():
        print(
            f"  {name}: {max(cost.rates):.0f} requests/s; processor time a request {cost.least * 1e6:.0f} µs, of which "
            f"{median(cost.deciding) * 1e6:.0f} µs outside of the gateway",
            flush=True,
        )
    for name, without in (("tools", "open, TLS"), ("claims", "open")):
        native, asked = (costs[f"{name}, {how}"].least - costs[without].least for how in ("native", "call-out"))
        single = costs[_ALONE].least
        print(
            f"  {name}: deciding takes {native * 1e6:.0f} µs in Envoy and {asked * 1e6:.0f} µs with a call-out, "
            f"{asked / native:.1f} times as long. With a server that costs nothing, an Envoy that answers by itself, "
            f"native calls come to {single / (single + native):.2f} of open ones and to "
            f"{(single + asked) / (single + native):.2f} times call-outs",
            flush=True,
        )
        reading = costs[f"{name}, {_READ}"].least - costs[f"open, {_READ}"].least
        bound = costs[f"{name}, call-out"].least / (costs[without].least + reading)
        print(
            f"  {name}: the filters that read for rules take {reading * 1e6:.0f} µs. With rules that cost nothing, "
            f"native calls would come to {bound:.2f} times call-outs",
            flush=True,
        )
    compare(costs, "tools, native", "open, TLS", 0.55)
    compare(costs, "claims, native", "open", 0.5)
    compare(costs, "tools, native", "tools, call-out", 2.5)
    compare(costs, "claims, native", "claims, call-out", 2.5)
    compare(costs, "claims, call-out", "claims, bare")


def _tell_latency(name: str, measured: Measured) -> None:
    print(
        f"  {name} at {measured.rate:.0f} requests/s: median {measured.quantile(0.5) * 1000:.2f} ms, "
        f"p99 {measured.quantile(0.99) * 1000:.2f} ms",
        flush=True,
    )
