"""Wakes what waits on an event loop, from any thread."""

import asyncio
import contextlib
from typing import TypeVar

T = TypeVar("T")


def settle_soon(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]", value: T) -> None:
    """Set the result of a future, unless it has one."""
    # If the loop is closed, there are no waiters.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_settle, future, value)


def _settle(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)
