"""Waits for what is about to happen, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from authplane.runtime.servers.listen import Address
from authplane.runtime.wait_until_listening import reachable

LIMIT: Final = 60.0
"""Seconds; for a machine that does twenty other things as well. What holds is found at once anyway."""
START_LIMIT: Final = 120.0
"""Seconds in which a program comes up, on such a machine: it reads all that it consists of first."""


async def eventually(holds: Callable[[], Awaitable[bool]], *, limit: float = LIMIT) -> None:
    """Ask again and again until it holds; fail when it does not in time."""
    async with asyncio.timeout(limit):
        while not await holds():  # noqa: ASYNC110 (other programs cannot set an event of ours)
            await asyncio.sleep(0.02)


async def listening(address: Address) -> None:
    """Wait until a program that was started listens there."""
    await reachable(address, limit=START_LIMIT)
