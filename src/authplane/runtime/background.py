"""Computes beside the event loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def beside(compute: Callable[[], T]) -> T:
    """Run a computation in a thread, so that everything else goes on meanwhile."""
    return await asyncio.to_thread(compute)
