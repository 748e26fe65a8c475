"""Runs the filters of a call: on a thread that may wait, or on an event loop."""

import asyncio
import contextlib
import logging
import threading
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Final, assert_never

from authplane.dataplane.filters.calls import (
    INTERNAL_FAULT,
    Ask,
    Effect,
    Flow,
    Outcome,
    Proceed,
    Stop,
    Until,
    Verdict,
    Wait,
)
from authplane.dataplane.runtime.connections.side_channels import (
    AioSideChannels,
    CallEndedError,
    SideChannels,
    WhenEnded,
)
from authplane.runtime.child_processes import place_of

_log: Final = logging.getLogger("authplane.grpc")
VERDICTS: Final = (Proceed, Stop)


def judge(
    flow: Flow, effect: Effect, side: SideChannels, when_ended: WhenEnded | None, until: float | None = None
) -> Verdict:
    """Run filters on this thread to their end, from the first thing that they wait for; raises `CallEndedError`.

    ``until`` is for calls of which nobody tells when they end: the time, as `monotonic` has it, of their deadline.
    """
    try:
        while True:
            if isinstance(effect, Ask):
                effect = flow.send(side.ask(effect if until is None else _in_time(effect, until), when_ended))
            else:
                effect = flow.send(_pause_for(effect, when_ended, until))
    except StopIteration as finished:
        return _checked(finished.value)
    except CallEndedError:
        flow.close()
        raise
    except Exception as error:  # noqa: BLE001 (a filter that fails must not let the call through)
        return _fault(flow, error)


def judge_at_once(flow: Flow) -> Verdict | Effect:
    """Run filters as far as they wait for nothing: most do not."""
    try:
        return next(flow)
    except StopIteration as finished:
        return _checked(finished.value)
    except Exception as error:  # noqa: BLE001 (as above)
        return _fault(flow, error)


async def judge_on_loop(flow: Flow, effect: Effect, side: AioSideChannels) -> Verdict:
    """Run filters to their end, from the first thing that they wait for."""
    try:
        while True:
            # Nearly all wait for an answer, and each coroutine between them and it costs them time.
            outcome = await (side.ask(effect) if isinstance(effect, Ask) else _pause_on_loop(effect))
            effect = flow.send(outcome)
    except StopIteration as finished:
        return _checked(finished.value)
    except asyncio.CancelledError:
        flow.close()
        raise
    except Exception as error:  # noqa: BLE001 (as above)
        return _fault(flow, error)


def _checked(verdict: object) -> Verdict:
    if isinstance(verdict, VERDICTS):
        return verdict
    _log.error("a filter returned no verdict")
    return INTERNAL_FAULT


def _fault(flow: Flow, error: Exception) -> Verdict:
    _log.error("a filter failed: %s", place_of(error))
    with contextlib.suppress(Exception):
        flow.close()
    return INTERNAL_FAULT


def _pause_for(effect: Wait | Until, when_ended: WhenEnded | None, until: float | None) -> Outcome:
    match effect:
        case Wait(seconds):
            _pause(threading.Event(), seconds, when_ended, until)
        case Until(flight):
            landed = threading.Event()
            flight.when_ended(landed.set)
            _pause(landed, None, when_ended, until)
        case _:
            assert_never(effect)
    return None


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


async def _pause_on_loop(effect: Wait | Until) -> Outcome:
    match effect:
        case Wait(seconds):
            await asyncio.sleep(seconds)
        case Until(flight):
            loop = asyncio.get_running_loop()
            landed: asyncio.Future[None] = loop.create_future()

            def wake() -> None:
                # The loop may be closed by now: then nobody waits.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_settle, landed)

            flight.when_ended(wake)
            await landed
        case _:
            assert_never(effect)
    return None


def _settle(landed: "asyncio.Future[None]") -> None:
    if not landed.done():
        landed.set_result(None)
