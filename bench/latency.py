"""How long checks take when the front has half of the load that it could bear."""

from contextlib import AsyncExitStack
from typing import Final

from bench.h2load import cores, load, message, require_allowed
from bench.servers import bare_pyvoy, our_testserver

_CHECKS: Final = 20_000
_ROUNDS: Final = 3


async def main() -> None:
    """Find the highest rate, then measure at half of it, beside a bare application at the same rate."""
    with cores() as core:
        if core is None:
            return
        async with AsyncExitStack() as stack:
            ours = await stack.enter_async_context(our_testserver())
            bare = await stack.enter_async_context(bare_pyvoy())
            asked = message()
            for port in (ours, bare):
                await require_allowed(port, asked)
            most = max([(await load(ours, core, asked, _CHECKS)).rate for _ in range(_ROUNDS)])
            halves = {
                port: [await load(port, core, asked, _CHECKS, rate=most / 2) for _ in range(_ROUNDS)]
                for port in (ours, bare)
            }
    best = {port: min(run.quantile(0.99) for run in runs) for port, runs in halves.items()}
    median = min(run.quantile(0.5) for run in halves[ours])
    print(
        f"  at {halves[ours][0].rate:.0f} checks/s, half of {most:.0f}: median {median * 1000:.2f} ms, "
        f"p99 {best[ours] * 1000:.2f} ms ({best[ours] / best[bare]:.1f} times the {best[bare] * 1000:.2f} ms of a bare "
        f"application at that rate)",
        flush=True,
    )
