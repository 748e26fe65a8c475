"""Computes beside the event loop."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def beside(compute: Callable[[], T]) -> T:
    """Run a computation in a thread, so that everything else goes on meanwhile."""
    import asyncio  # noqa: PLC0415 (who imports this has a loop, or never calls it)

    return await asyncio.to_thread(compute)
