"""Many clients, slow clients, and many requests at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from tests.soak.requests import Shown
from tests.soak.stage import Measured, Stage

_IDLE: Final = 2000
_SLOW: Final = 50
_BURST: Final = 200
_LONGEST: Final = 65.0
"""Seconds that a request may take to arrive, and some to notice the end."""
_MCP: Final = ("content-type: application/json", "accept: application/json, text/event-stream", "content-length: 3600")


async def idle(stage: Stage) -> None:
    """Connect, and say nothing."""
    async with _connected(stage, _IDLE):
        await asyncio.sleep(8)


async def slow(stage: Stage) -> None:
    """Send a request a byte at a time, and never all of it: half of them never end the head, the others the body."""
    head = _head(stage)
    async with _connected(stage, _SLOW) as writers:
        for writer in writers[::2]:
            writer.write(head)
        for second in range(10):
            for number, writer in enumerate(writers):
                if not writer.is_closing():
                    writer.write(head[second : second + 1] if number % 2 else b"y")
            await asyncio.sleep(1)


async def drip(stage: Stage) -> None:
    """Send a body so slowly that it would take an hour, and measure how long Envoy waits for it."""
    begun = stage.now()
    async with _connected(stage, 1) as (writer,), asyncio.timeout(2 * _LONGEST):
        writer.write(_head(stage))
        while not writer.is_closing():
            writer.write(b"y")
            await asyncio.sleep(1)
    stage.measured.append(Measured("dripped request is ended", stage.now() - begun, _LONGEST))


def _head(stage: Stage) -> bytes:
    """Return the head of a request, and the beginning of a body that nobody can refuse yet."""
    token = stage.load.tokens.headers(Shown.TOKEN)["authorization"]
    lines = ["POST /shop/0 HTTP/1.1", "host: soak", f"authorization: {token}", *_MCP]
    return "\r\n".join([*lines, "", '{"x":"']).encode()


async def bursts(stage: Stage) -> None:
    for _ in range(3):
        await stage.load.burst(_BURST, stage.random)
        await asyncio.sleep(1)


@asynccontextmanager
async def _connected(stage: Stage, count: int) -> AsyncGenerator[list[asyncio.StreamWriter]]:
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", stage.world.ports.http)
            writers.append(writer)
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()
