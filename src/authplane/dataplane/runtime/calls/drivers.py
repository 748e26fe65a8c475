"""Drives a decision: on a thread that may wait, or on an event loop.

A decision that may have to wait is a generator. It yields each step that its driver must perform, receives the outcome,
and returns its result. It is written once; threads and event loops differ only in who performs the steps, and this
module contains only that.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any, TypeVar, assert_never

from authplane.dataplane.filters.calls import Ask, Effect, Outcome, Until, Wait
from authplane.dataplane.runtime.connections.side_channels import (
    AioSideChannels,
    CallEndedError,
    SideChannels,
    WhenEnded,
)
from authplane.dataplane.runtime.connections.wake_loop import settle_soon

S = TypeVar("S")
T = TypeVar("T")


def drive(steps: Generator[S, Any, T], take: Callable[[S], Any]) -> T:
    """Perform each step on this thread, and return the result; the failure of a step is thrown into the generator."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = take(step)
            except Exception as error:  # noqa: BLE001 (the generator that yields a step knows what its failure means)
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as finished:
        result: T = finished.value
        return result
    except BaseException:
        steps.close()
        raise


async def drive_on_loop(steps: Generator[S, Any, T], take: Callable[[S], Awaitable[Any]], step: S | None = None) -> T:
    """Do the same on an event loop, from the step that is given if there has been one; closes it when cancelled."""
    try:
        if step is None:
            step = next(steps)
        while True:
            try:
                outcome = await take(step)
            except Exception as error:  # noqa: BLE001 (as above)
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as finished:
        result: T = finished.value
        return result
    except BaseException:
        steps.close()
        raise


def effect_on_thread(
    effect: Effect, side: SideChannels, when_ended: WhenEnded | None, until: float | None = None
) -> Outcome:
    """Wait for what a filter needs; raises `CallEndedError`.

    ``until`` is the deadline, in the time of `monotonic`, of calls whose end grpcio does not report.
    """
    match effect:
        case Ask():
            return side.ask(effect if until is None else _in_time(effect, until), when_ended)
        case Wait(seconds):
            _pause(threading.Event(), seconds, when_ended, until)
        case Until(flight):
            landed = threading.Event()
            flight.when_ended(landed.set)
            _pause(landed, None, when_ended, until)
        case _:
            assert_never(effect)
    return None


def effect_on_loop(effect: Effect, side: AioSideChannels) -> Awaitable[Outcome]:
    """Return what waits for what a filter needs."""
    # Nearly all wait for an answer, and each coroutine in between would cost time.
    return side.ask(effect) if isinstance(effect, Ask) else _pause_on_loop(effect)


def _in_time(ask: Ask, until: float) -> Ask:
    """Leave a side call no more time than there is: others may have waited before it."""
    left = until - monotonic()
    if left <= 0:
        raise CallEndedError
    return ask if ask.timeout is not None and ask.timeout <= left else replace(ask, timeout=left)


def _pause(event: threading.Event, seconds: float | None, when_ended: WhenEnded | None, until: float | None) -> None:
    """Wait for an event or for some time, unless the call ends."""
    ended = threading.Event()

    def end() -> None:
        ended.set()
        event.set()

    if when_ended is not None and not when_ended(end):
        raise CallEndedError
    left = inf if until is None else max(until - monotonic(), 0.0)
    limit = min(left, inf if seconds is None else seconds)
    happened = event.wait(None if limit == inf else limit)
    if ended.is_set() or (not happened and limit == left):
        raise CallEndedError


async def _pause_on_loop(effect: Wait | Until) -> None:
    match effect:
        case Wait(seconds):
            await asyncio.sleep(seconds)
        case Until(flight):
            loop = asyncio.get_running_loop()
            landed: asyncio.Future[None] = loop.create_future()
            flight.when_ended(lambda: settle_soon(loop, landed, None))
            await landed
        case _:
            assert_never(effect)
