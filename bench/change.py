"""From a changed file to the changed answer of Envoy, in a small folder and in a large one."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from tests.support.gateways.contour_gateway import Gateway, gateway, proxy

_ROUNDS = 5
_LARGE = 1000


async def main() -> None:
    """Measure the same change with 1 HTTPProxy beside others, and with 1,000."""
    medians = {}
    for others in (0, _LARGE - 1):
        async with gateway() as it:
            it.write("others.yaml", "---".join(_other(index) for index in range(others)) or "# none")
            if others:
                await it.answers("/allow", 200, f"host-{others - 1}.many.example", limit=30)
            for what, change in (("route", _route), ("authorization", _authorization)):
                medians[others, what] = statistics.median([await change(it, index) for index in range(_ROUNDS)])
    for what in ("route", "authorization"):
        small, large = medians[0, what], medians[_LARGE - 1, what]
        print(
            f"  {what} changed: {large * 1000:.0f} ms with {_LARGE} HTTPProxies, {small * 1000:.0f} ms with 1 "
            f"(ratio {large / small:.1f}; limit 1000 ms; 100 ms of each are the holdoff)",
            flush=True,
        )


def _other(index: int) -> str:
    return proxy(f"host-{index}.many.example", name=f"host-{index}")


async def _route(it: Gateway, index: int) -> float:
    """Open another path: only the host's routes change."""
    path = f"/open-{index}"

    async def holds() -> bool:
        return await it.status(path) == 200

    return await _measure(it, proxy().replace("/public", path), holds)


async def _authorization(it: Gateway, index: int) -> float:
    """Change the context that the authorization service sees, and the timeout: the listener changes as well."""
    text = proxy(authorization=f"      authPolicy: {{context: {{round: r{index}}}}}")

    async def holds() -> bool:
        answer = await it.get("/allow")
        return answer.status_code == 200 and ["auth-context-round", f"r{index}"] in answer.json()["headers"]

    return await _measure(it, text.replace("responseTimeout: 2s", f"responseTimeout: {2000 + index}ms"), holds)


async def _measure(it: Gateway, text: str, holds: Callable[[], Awaitable[bool]]) -> float:
    begun = time.perf_counter()
    it.write("web.yaml", text)
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 (another program cannot set an event of ours)
            await asyncio.sleep(0.002)
    return time.perf_counter() - begun
