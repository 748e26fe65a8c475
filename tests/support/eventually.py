"""Waits for what is about to happen, never for a time."""

import asyncio
from collections.abc import Awaitable, Callable

LIMIT = 30.0
"""Seconds; for a machine that does ten other things as well. What holds is found at once anyway."""


async def eventually(holds: Callable[[], Awaitable[bool]], *, limit: float = LIMIT) -> None:
    """Ask again and again until it holds; fail when it does not in time."""
    async with asyncio.timeout(limit):
        while not await holds():  # noqa: ASYNC110 (other programs cannot set an event of ours)
            await asyncio.sleep(0.02)
