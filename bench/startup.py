"""From ``authplane run`` to the first authorized request; the environment exists already."""

import asyncio
import ssl
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2

from authplane.runtime.child_processes import Line, run_process

_ROUNDS = 3


async def main() -> None:
    """Measure a few starts: the first also makes the certificates."""
    with TemporaryDirectory() as state:
        for number in range(_ROUNDS):
            seconds = await _start(Path(state))
            print(f"  start {number + 1}: {seconds:.2f} s to the first authorized request (limit 5 s)", flush=True)


async def _start(state: Path) -> float:
    async def ignore(_: Line) -> None: ...

    begun = time.perf_counter()
    argv = [sys.executable, "-m", "authplane", "run", "--state-dir", str(state)]
    async with run_process(argv, sink=ignore, grace=5), asyncio.timeout(30):
        while not await _authorized(state / "ca.crt"):  # noqa: ASYNC110 (as nobody tells)
            await asyncio.sleep(0.01)
        return time.perf_counter() - begun


async def _authorized(ca: Path) -> bool:
    try:
        context = ssl.create_default_context(cafile=str(ca))
        async with httpx2.AsyncClient(verify=context) as client:
            return (await client.get("https://localhost:8443/allow")).status_code == 200
    except (OSError, httpx2.TransportError):
        return False
