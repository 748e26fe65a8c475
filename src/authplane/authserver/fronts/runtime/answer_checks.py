"""Answers checks for every front: bytes in, bytes out, and a denial if anything fails."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from enum import Enum, auto
from time import perf_counter
from typing import Final, ParamSpec, Protocol, TypeAlias, TypeVar, assert_never

import structlog

from authplane.authserver.engine.backend import Backend
from authplane.authserver.engine.backend_choice import Choice
from authplane.authserver.engine.check_engine import FAILED, Answer, CheckEngine, Failed, Pending
from authplane.authserver.engine.wire import render_decision
from authplane.authserver.records.runtime.traces import NO_TRACE, CallerTrace
from authplane.policy.check.decision import Unavailable
from authplane.policy.check.request import Malformed, Request
from authplane.policy.verdicts.effects import Busy, Effect, Outcome
from authplane.runtime.child_processes import place_of

T = TypeVar("T")

_log: Final = structlog.stdlib.get_logger()

Perform: TypeAlias = Callable[[Effect], Awaitable[Outcome]]
"""Performs an effect that a decision requires."""

SHED: Final = render_decision(Unavailable(cause="too many pending checks"))
LATE: Final = render_decision(Unavailable(cause="no decision in time"))
"""Replies made beforehand, so that nothing can fail in giving them."""


Described: TypeAlias = Request | Malformed | None
"""The request of a check without an answer, as far as it could be read."""


class Witness(Protocol):
    """Told of every check of a backend; none of it raises, waits, or changes an answer."""

    def began(self) -> None:
        """Record a check that begins."""

    def decided(self, made: Answer, seconds: float, caller: CallerTrace) -> None:
        """Record an answer."""

    def passed(self, made: Answer, seconds: float, caller: CallerTrace) -> None:
        """Record an answer to a check that ended as soon as it began."""

    def failed(self, error: Exception, seconds: float, caller: CallerTrace, request: Described) -> None:
        """Record a check whose backend raised."""

    def late(self, seconds: float, caller: CallerTrace, request: Described) -> None:
        """Record a check without a decision in time."""

    def shed(self) -> None:
        """Record a check that was rejected before it began, because too many are pending."""


class Observing(Protocol):
    """Finds the witness of the checks of each backend."""

    @property
    def traces(self) -> bool:
        """Whether the caller's trace is of use."""

    def of(self, backend: str, /) -> Witness:
        """Return the witness of the checks of a backend, by the name of the backend."""


class Unanswered(Enum):
    """Why a flow has no result."""

    SHED = auto()
    LATE = auto()
    FAILED = auto()


async def no_room(_: Effect) -> Outcome:
    """Perform nothing: for backends without effects."""
    return Busy()


class Driver:
    """Runs the flows of checks, at most so many at a time."""

    def __init__(self, observer: Observing, *, perform: Perform = no_room, in_flight: int = 1000) -> None:
        self.observer = observer
        self._perform = perform
        self._most = in_flight
        self._waiting = 0

    def decided(self, made: Answer, seconds: float, caller: CallerTrace) -> None:
        """Tell of a check that was answered without waiting for anything."""
        try:
            self.observer.of(made.backend).passed(made, seconds, caller)
        except Exception as error:  # noqa: BLE001 (a decision applies even if it cannot be recorded)
            _complain(error)

    def failed(self, failed: Failed, seconds: float, caller: CallerTrace) -> None:
        """Tell of a check whose backend raised before it waited for anything."""
        witness = self.observer.of(failed.backend)
        _tell(witness.began)
        _tell(witness.failed, failed.error, seconds, caller, failed.request)

    async def run(
        self,
        pending: Pending[T],
        answer_of: Callable[[T], Answer],
        *,
        limit: float | None,
        caller: CallerTrace = NO_TRACE,
    ) -> T | Unanswered:
        """Run a flow to its end, within ``limit`` seconds if there is something to wait for."""
        backend, flow, request = pending
        begun = perf_counter()
        try:
            effect = next(flow)
        except StopIteration as finished:
            made: T = finished.value
            self.decided(answer_of(made), perf_counter() - begun, caller)
            return made
        except Exception as error:  # noqa: BLE001 (a failed check must become an answer that does not allow)
            self.failed(Failed(backend, error, request), perf_counter() - begun, caller)
            return Unanswered.FAILED
        observer = self.observer.of(backend)
        with contextlib.closing(flow):
            # Only a check that waits can pile up: the others are done before the next one is read.
            if self._waiting >= self._most:
                _tell(observer.shed)
                return Unanswered.SHED
            _tell(observer.began)
            self._waiting += 1
            try:
                async with asyncio.timeout(limit):
                    while True:
                        effect = flow.send(await self._perform(effect))
            except StopIteration as finished:
                waited: T = finished.value
                _tell(observer.decided, answer_of(waited), perf_counter() - begun, caller)
                return waited
            except TimeoutError:
                _tell(observer.late, perf_counter() - begun, caller, request)
                return Unanswered.LATE
            except Exception as error:  # noqa: BLE001 (as above)
                _tell(observer.failed, error, perf_counter() - begun, caller, request)
                return Unanswered.FAILED
            except asyncio.CancelledError:
                # The client has disconnected.
                _tell(observer.late, perf_counter() - begun, caller, request)
                raise
            finally:
                self._waiting -= 1


P = ParamSpec("P")


def _tell(about: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
    """Tell the observer. It promises not to raise; an answer must not depend on that."""
    try:
        about(*arguments, **named)
    except Exception as error:  # noqa: BLE001 (a decision applies even if it cannot be recorded)
        _complain(error)


def _complain(error: Exception) -> None:
    with contextlib.suppress(Exception):
        _log.error("failed to record a decision", error=place_of(error))


class Checks:
    """Answers gRPC checks, with a backend or with the one that a choice picks."""

    def __init__(
        self, backend: Backend | Choice, *, observer: Observing, perform: Perform = no_room, in_flight: int = 1000
    ) -> None:
        self._check = CheckEngine(backend).check
        self._observer = observer
        self._driver = Driver(observer, perform=perform, in_flight=in_flight)
        self.traces: Final = observer.traces
        """Whether the caller's trace is of use."""

    async def reply(self, body: bytes, *, limit: float | None = None, caller: CallerTrace = NO_TRACE) -> bytes:
        """Return a serialized CheckResponse, within ``limit`` seconds if there is something to wait for."""
        made = self.begin(body, limit=limit, caller=caller)
        return made if isinstance(made, bytes) else await made

    def begin(
        self, body: bytes, *, limit: float | None = None, caller: CallerTrace = NO_TRACE
    ) -> bytes | Coroutine[None, None, bytes]:
        """Return a serialized CheckResponse, or an awaitable of it if the check has to wait.

        Most checks do not wait, and a coroutine that never waits would take much of their time.
        """
        begun = perf_counter()
        made = self._check(body, datetime.now(UTC))
        if isinstance(made, Answer):
            try:
                self._observer.of(made.backend).passed(made, perf_counter() - begun, caller)
            except Exception as error:  # noqa: BLE001 (a decision applies even if it cannot be recorded)
                _complain(error)
            return made.reply
        if isinstance(made, Failed):
            self._driver.failed(made, perf_counter() - begun, caller)
            return FAILED
        return self._finish(made, limit, caller)

    async def _finish(self, pending: Pending[Answer], limit: float | None, caller: CallerTrace) -> bytes:
        made = await self._driver.run(pending, _itself, limit=limit, caller=caller)
        match made:
            case Answer(reply=reply):
                return reply
            case Unanswered.SHED:
                return SHED
            case Unanswered.LATE:
                return LATE
            case Unanswered.FAILED:
                return FAILED
            case _:
                assert_never(made)


def _itself(made: Answer) -> Answer:
    return made
