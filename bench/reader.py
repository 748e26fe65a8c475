"""The reader of MCP messages inside Envoy: its processor time by size of the body, and Envoy's memory after many calls.

``CALLS`` sets the number of calls for the memory.
"""

import os
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx2
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.mcp.mcp_checks import call_body

from authplane.devkit.local.dev_issuer import IssuerPlan, RunningIssuer, serve_issuer
from authplane.runtime.envoy_process import envoy_binary
from authplane.runtime.servers.listen import TcpAddress
from bench.h2load import Posted, cores, send
from bench.native_readers import MARK, MOST_BYTES, readers
from bench.native_site import HEADERS, beside, calls, whole_gateway
from bench.processes import bytes_resident
from bench.rounds import Call, Cost, one_round, until_allowed, until_native

_SIZES: Final = (200, 10_000, 60_000)
_REQUESTS: Final = 2_000
_ROUNDS: Final = 6
_PORTION: Final = 10_000


async def main() -> None:
    """Measure both releases of Envoy by size, and the memory of the newer one."""
    with cores() as core:
        if core is None:
            return
        for version in VERSIONS:
            with TemporaryDirectory() as name:
                plan = IssuerPlan(folder=Path(name) / "dev", address=TcpAddress(host="127.0.0.1", port=0))
                async with serve_issuer(plan, datetime.now(UTC)) as issuer:
                    await _sizes(core, Path(name), issuer, version)
                    if version == VERSIONS[-1]:
                        await _memory(core, Path(name), issuer, version.binary or envoy_binary())


async def _sizes(core: int, root: Path, issuer: RunningIssuer, version: Version) -> None:
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(beside(core, root, [], most_bytes=MOST_BYTES))
        site = await stack.enter_async_context(readers(root, upstream, issuer, version.binary or envoy_binary()))
        url = f"http://127.0.0.1:{site.ports.plain}"
        sent = {
            (size, name): Call(Posted(f"{url}/{name}", _body(size), HEADERS), site)
            for size in _SIZES
            for name in ("open", "tools")
        }
        for call in sent.values():
            await until_allowed(call, core)
            await _require_read(url, call.posted)
        costs = {key: Cost([], [], []) for key in sent}
        for key in list(sent) * _ROUNDS:
            await one_round(sent[key], costs[key], core, _REQUESTS)
    for size in _SIZES:
        without, with_it = costs[size, "open"], costs[size, "tools"]
        print(
            f"  Envoy {version.number}, {len(_body(size))} bytes: {without.least * 1e6:.0f} µs a call without "
            f"the reader and {with_it.least * 1e6:.0f} µs with it: {(with_it.least - without.least) * 1e6:.0f} µs "
            f"more; {max(without.rates):.0f} and {max(with_it.rates):.0f} calls/s",
            flush=True,
        )


def _body(size: int) -> bytes:
    """Return a call of a tool with about so many bytes: objects of short texts and numbers."""
    edits: list[dict[str, object]] = []
    while len(made := call_body("add", edits=edits)) < size:
        edits.append({"path": f"src/module_{len(edits)}.py", "line": len(edits), "text": "return value + 1"})
    return made


async def _require_read(url: str, posted: Posted) -> None:
    """Raise if the reader does not mark a message: to refuse early is nothing to measure."""
    async with httpx2.AsyncClient() as client:
        reply = await client.post(f"{url}/marked", content=posted.body, headers=dict(posted.headers))
    if reply.headers.get(MARK) != "tools/call":
        raise RuntimeError(f"the reader does not mark a message of {len(posted.body)} bytes: {reply.headers}")


async def _memory(core: int, root: Path, issuer: RunningIssuer, binary: Path) -> None:
    """Send calls in portions, each with other arguments, that Envoy decides."""
    portions = int(os.environ.get("CALLS", "200000")) // _PORTION
    async with whole_gateway(root, core, issuer, binary) as (site, _):
        call = Call(calls(site.ports, root / "dev")["claims, native"], site)
        await until_allowed(call, core)
        await until_native(call, core)
        sizes = []
        for number in range(portions):
            body = call_body(f"read_{number}", path=f"/{number}", text="x" * (number % 10 * 100))
            await send(call.posted._replace(body=body), core, _PORTION)
            sizes.append(bytes_resident(site.gateway))
    print(
        f"  Envoy has {sizes[-1] / 1e6:.1f} MB after {portions * _PORTION} native calls (at most {max(sizes) / 1e6:.1f}"
        f" MB), {sizes[-1] / sizes[0]:.2f} times the {sizes[0] / 1e6:.1f} MB after {_PORTION} (limit 1.2)",
        flush=True,
    )
