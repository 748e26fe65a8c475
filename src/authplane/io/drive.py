"""Runs flows on asyncio."""

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

from authplane.policy.flow import Effect, Outcome

T = TypeVar("T")


async def drive(flow: Generator[Effect, Outcome, T], perform: Callable[[Effect], Awaitable[Outcome]]) -> T:
    """Perform the effects of ``flow`` until it returns; one that yields nothing finishes without a pause."""
    try:
        effect = next(flow)
        while True:
            effect = flow.send(await perform(effect))
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        flow.close()
