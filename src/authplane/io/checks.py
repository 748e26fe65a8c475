"""What every front does with a check: bytes in, bytes out, and never an allowance by accident."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator
from datetime import UTC, datetime
from typing import Final, TypeAlias

import structlog

from authplane.io.process import place_of
from authplane.policy.decision import Unavailable
from authplane.policy.engine import FAILED, Answer, Backend, check
from authplane.policy.flow import Busy, Effect, Outcome
from authplane.policy.wire import render_decision

Decided: TypeAlias = Callable[[Answer], None]
"""Told of every decision, after it is made; it cannot change it."""

Perform: TypeAlias = Callable[[Effect], Awaitable[Outcome]]
"""Does what a decision asks for on the way."""

SHED: Final = render_decision(Unavailable(cause="too many checks at a time"))
LATE: Final = render_decision(Unavailable(cause="no decision in time"))
"""Replies made beforehand, so that nothing can fail in giving them."""

_log: Final = structlog.stdlib.get_logger()


async def no_room(_: Effect) -> Outcome:
    """Perform nothing: for backends that ask for nothing."""
    return Busy()


class Checks:
    """Answers checks with a backend, at most so many at a time."""

    def __init__(
        self, backend: Backend, *, decided: Decided, perform: Perform = no_room, in_flight: int = 1000
    ) -> None:
        self._backend = backend
        self._decided = decided
        self._perform = perform
        self._most = in_flight
        self._waiting = 0

    async def reply(self, body: bytes, *, limit: float | None = None) -> bytes:
        """Return a serialized CheckResponse, within ``limit`` seconds if there is something to wait for."""
        flow = check(self._backend, body, datetime.now(UTC))
        try:
            effect = next(flow)
        except StopIteration as finished:
            return self._told(finished.value)
        except Exception as error:  # noqa: BLE001 (a failed check must become an answer that does not allow)
            return self._failed(error)
        with contextlib.closing(flow):
            return await self._wait(flow, effect, limit)

    async def _wait(self, flow: Generator[Effect, Outcome, Answer], effect: Effect, limit: float | None) -> bytes:
        # Only a check that waits can pile up: the others are done before the next one is read.
        if self._waiting >= self._most:
            return SHED
        self._waiting += 1
        try:
            async with asyncio.timeout(limit):
                while True:
                    effect = flow.send(await self._perform(effect))
        except StopIteration as finished:
            return self._told(finished.value)
        except TimeoutError:
            return LATE
        except Exception as error:  # noqa: BLE001 (as above)
            return self._failed(error)
        finally:
            self._waiting -= 1

    def _told(self, made: Answer) -> bytes:
        try:
            self._decided(made)
        except Exception as error:  # noqa: BLE001 (a decision holds even if it cannot be told)
            _complain("decision not recorded", error)
        return made.reply

    def _failed(self, error: Exception) -> bytes:
        _complain("check", error, decision="failed", backend=self._backend.name)
        return FAILED


def _complain(what: str, error: Exception, **more: str) -> None:
    """Log a fault of ours. Whatever goes wrong with the log, the check has its answer."""
    with contextlib.suppress(Exception):
        _log.error(what, error=place_of(error), **more)
