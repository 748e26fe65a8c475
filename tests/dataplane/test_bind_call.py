"""Where a call goes, decided without anything that waits; and the drivers that wait."""

import asyncio
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from authplane.core.secret import Secret
from authplane.dataplane.filters.calls import (
    INTERNAL_FAULT,
    Answered,
    Ask,
    Call,
    Code,
    Flow,
    Proceed,
    Stop,
    Unanswered,
    Wait,
)
from authplane.dataplane.routing.call_filters import FixedRules
from authplane.dataplane.routing.call_routing import Routed
from authplane.dataplane.runtime.calls.drivers import drive, drive_on_loop
from authplane.dataplane.runtime.channels.bind_call import AskedCall, AwaitPlan, TakeChannel, bind_call
from authplane.dataplane.runtime.channels.call_tokens import AwaitToken
from authplane.dataplane.runtime.channels.channel_plan import (
    BUSY,
    CLOSED,
    NOWHERE,
    AlreadyOpen,
    Backends,
    BoundCall,
    Naming,
    Plan,
    State,
)
from authplane.dataplane.runtime.channels.current_plan import CurrentPlan
from authplane.dataplane.runtime.connections.channel_pool import ChannelPool, PooledChannel
from authplane.dataplane.runtime.connections.deadlines import Deadline
from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError
from authplane.dataplane.runtime.connections.jwt_calls import LATE
from authplane.dataplane.runtime.connections.side_channels import CallEndedError
from authplane.dataplane.runtime.connections.token_source import TokenSource
from authplane.xds.bootstrap.jwt_file_state import Bearer, Unauthenticated, Unavailable

ASK: Final = Ask(channel="authz", method="/a/b", request=b"", timeout=1.0)
DENIED: Final = Stop(code=Code.PERMISSION_DENIED, message="denied")
SOURCE: Final = TokenSource("/nowhere")


class Pool(ChannelPool):
    """Opens nothing, and counts."""

    def __init__(self, broken: frozenset[str] = frozenset(), tokens: tuple[TokenSource, ...] = ()) -> None:
        super().__init__(lambda _: AlreadyOpen(None, None))
        self.broken = broken
        self.channels = {key: self._made(key, tokens) for key in ("a", "b")}
        self.released: list[str] = []

    def _made(self, key: str, tokens: tuple[TokenSource, ...]) -> PooledChannel:
        made = PooledChannel(key, AlreadyOpen(None, None))
        made.tokens = tokens
        return made

    def keep(self, keys: frozenset[Any]) -> None:
        raise AssertionError

    def release(self, key: Any, pooled: PooledChannel) -> None:
        assert pooled is self.channels[key]
        self.released.append(key)

    def is_broken(self, pooled: PooledChannel) -> bool:
        return pooled.channel in self.broken


@dataclass(frozen=True)
class Asking:
    """A filter that lets pass whom its service answers."""

    def run(self, call: Call) -> Flow:
        outcome = yield ASK
        return Proceed(metadata=(*call.metadata, ("x-judged", "yes"))) if isinstance(outcome, Answered) else DENIED


@dataclass
class Faulty:
    """A filter that waits, and then fails or returns what is no verdict."""

    verdict: Any
    closed: list[bool] = field(default_factory=list)

    def run(self, _: Call) -> Flow:
        try:
            yield Wait(1)
            if isinstance(self.verdict, Exception):
                raise self.verdict
            made: Proceed = self.verdict
            return made
        finally:
            self.closed.append(True)


def planned(*filters: Any, keys: tuple[str, ...] = ("a",), most: int | None = None, cluster: str = "c") -> Plan:
    return Plan(
        rules=FixedRules(Routed(filters=filters, cluster=cluster, longest=30.0)),
        clusters={"c": Backends(keys=keys, most=most)},
        draw=lambda: 0.5,
    )


def binding(state: State, pool: Pool, timeout: float | None = None, *, patient: bool = False) -> Any:
    asked = AskedCall("/a/b", (("x-a", "1"),), None, patient)
    return bind_call(Naming(target="t", authority="t"), CurrentPlan(state), pool, asked, Deadline(timeout))


def scripted(pool: Pool, outcomes: list[Any], seen: list[Any]) -> Any:
    """Return what takes steps: with the next outcome, or with a channel of the pool."""

    def take(step: Any) -> Any:
        seen.append(step)
        if isinstance(step, TakeChannel) and not (outcomes and outcomes[0] in {"closed", "unusable"}):
            pooled = pool.channels[str(step.key)]
            pooled.busy += 1
            return pooled
        outcome = outcomes.pop(0)
        if outcome == "unusable":
            raise CredentialsUnusableError("no CA")
        if isinstance(outcome, BaseException):
            raise outcome
        return None if outcome == "closed" else outcome

    return take


async def driven(stack: str, steps: Generator[Any, Any, Any], take: Any) -> Any:
    if stack == "threads":
        return await asyncio.to_thread(drive, steps, take)

    async def take_on_loop(step: Any) -> Any:
        await asyncio.sleep(0)
        return take(step)

    return await drive_on_loop(steps, take_on_loop)


TOKEN: Final = Bearer(Secret("t"))
# The state of the channel, its pool, the outcomes of steps; then the steps, and where the call goes or how it fails.
CASES: Final[dict[str, tuple[Any, dict[str, Any], list[Any], list[Any], str | Stop]]] = {
    "a plan without filters": (planned(), {}, [], [TakeChannel("a")], "a"),
    "no plan yet": (None, {}, [planned()], [AwaitPlan(False), TakeChannel("a")], "a"),
    "no plan in time": (None, {}, [LATE], [AwaitPlan(False)], LATE),
    "a reason why there is no plan": (DENIED, {}, [], [], DENIED),
    "a filter that is answered": (planned(Asking()), {}, [Answered(b"")], [ASK, TakeChannel("a")], "a"),
    "a filter that denies": (planned(Asking()), {}, [Unanswered(Code.UNAVAILABLE, "")], [ASK], DENIED),
    "a filter whose call ends": (planned(Asking()), {}, [CallEndedError()], [ASK], LATE),
    "a step that fails": (planned(Asking()), {}, [OSError()], [ASK], INTERNAL_FAULT),
    "a filter that fails": (planned(Faulty(ValueError())), {}, [None], [Wait(1)], INTERNAL_FAULT),
    "a filter without a verdict": (planned(Faulty("yes")), {}, [None], [Wait(1)], INTERNAL_FAULT),
    "an unknown cluster": (planned(cluster="d"), {}, [], [], NOWHERE),
    "a channel that is closed": (planned(), {}, ["closed"], [TakeChannel("a")], CLOSED),
    "credentials that cannot be used": (
        planned(), {}, ["unusable"], [TakeChannel("a")], Stop(code=Code.UNAVAILABLE, message="no CA"),
    ),
    "too many calls": (planned(most=0), {}, [], [TakeChannel("a")], BUSY),
    "two backends": (planned(keys=("a", "b")), {}, [], [TakeChannel("a"), TakeChannel("a")], "a"),
    "two backends, the first of which is broken": (
        planned(keys=("a", "b")), {"broken": frozenset("a")}, [],
        [TakeChannel("a"), TakeChannel("b"), TakeChannel("b")], "b",
    ),
    "two backends, both broken": (
        planned(keys=("a", "b")), {"broken": frozenset("ab")}, [],
        [TakeChannel("a"), TakeChannel("b"), TakeChannel("a")], "a",
    ),
    "a token": (planned(), {"tokens": (SOURCE,)}, [TOKEN], [TakeChannel("a"), AwaitToken(SOURCE)], "a"),
    "a token in vain": (
        planned(), {"tokens": (SOURCE,)}, [Unauthenticated("expired")], [TakeChannel("a"), AwaitToken(SOURCE)],
        Stop(code=Code.UNAUTHENTICATED, message="expired"),
    ),
    "a token that cannot be read": (
        planned(), {"tokens": (SOURCE,)}, [Unavailable("gone")], [TakeChannel("a"), AwaitToken(SOURCE)],
        Stop(code=Code.UNAVAILABLE, message="gone"),
    ),
    "a token too late": (planned(), {"tokens": (SOURCE,)}, [None], [TakeChannel("a"), AwaitToken(SOURCE)], LATE),
}  # fmt: skip


@pytest.mark.parametrize("stack", ["threads", "loop"])
@pytest.mark.parametrize(("state", "pooling", "outcomes", "steps", "end"), CASES.values(), ids=CASES.keys())
async def test_threads_and_event_loops_take_the_same_steps_to_the_same_end(  # noqa: PLR0913, PLR0917 (a table)
    stack: str, state: State, pooling: dict[str, Any], outcomes: list[Any], steps: list[Any], end: str | Stop
) -> None:
    pool, seen = Pool(**pooling), list[Any]()
    found = await driven(stack, binding(state, pool), scripted(pool, list(outcomes), seen))
    assert seen == steps
    taken = [step.key for step in steps if isinstance(step, TakeChannel)]
    if isinstance(found, Stop):
        assert found == end
        # Whatever was taken is given back; what was not, is not.
        assert pool.released == ([] if "closed" in outcomes or "unusable" in outcomes else taken)
    else:
        assert (found.pooled.channel, found.timeout) == (end, 30.0)
        assert pool.released == taken[:-1]
        found.release()
        assert pool.released == taken


def test_a_patient_call_waits_although_there_is_a_reason_why_there_is_no_plan() -> None:
    pool, seen = Pool(), list[Any]()
    found = drive(binding(DENIED, pool, patient=True), scripted(pool, [planned()], seen))
    assert isinstance(found, BoundCall)
    assert seen == [AwaitPlan(True), TakeChannel("a")]


def test_a_call_whose_time_is_over_takes_no_channel() -> None:
    assert drive(binding(planned(), Pool(), 0), scripted(Pool(), [], [])) == LATE


@pytest.mark.parametrize("stack", ["threads", "loop"])
async def test_a_call_that_is_given_up_while_it_waits_lets_go_of_everything(stack: str) -> None:
    judge, pool = Faulty(None), Pool(tokens=(SOURCE,))
    for state, outcomes in ((planned(judge), [KeyboardInterrupt()]), (planned(), [KeyboardInterrupt()])):
        with pytest.raises(KeyboardInterrupt):
            await driven(stack, binding(state, pool), scripted(pool, list(outcomes), []))
    assert judge.closed == [True]
    assert pool.released == ["a"]


async def test_a_task_that_is_cancelled_closes_what_it_drives() -> None:
    judge, waiting = Faulty(None), asyncio.Event()

    async def wait(_: object) -> None:
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(drive_on_loop(binding(planned(judge), Pool()), wait))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert judge.closed == [True]
