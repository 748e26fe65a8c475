"""Work beside the event loop."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import bcrypt
import pytest

from authplane.base.secret import Secret
from authplane.io.hashing import HashPool
from authplane.policy.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.flow import Busy, Outcome, Work
from authplane.policy.htpasswd import Htpasswd, HtpasswdSettings
from authplane.policy.realms import Declared, build_realms
from authplane.policy.request import Request
from authplane.policy.throttle import Rate
from authplane.policy.users import parse_users

LIMIT = 5.0


@dataclass(frozen=True, slots=True)
class Held:
    """A work that waits to be let go."""

    name: str
    go: threading.Event = field(default_factory=threading.Event, compare=False)
    begun: list[str] = field(default_factory=list, compare=False)

    def __call__(self) -> bool:
        self.begun.append(self.name)
        return self.go.wait(LIMIT)


async def performed(pool: HashPool, *runs: Callable[[], bool], then: Callable[[], None]) -> list[Outcome]:
    """Start all, do something when each has begun or waits, and return the outcomes."""
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(pool.perform(Work(run))) for run in runs]
        await asyncio.sleep(0)
        then()
    return [task.result() for task in started]


async def test_more_than_the_limit_hear_at_once_that_there_is_no_room() -> None:
    go = threading.Event()
    with HashPool(threads=1, limit=2) as pool:
        outcomes = await performed(pool, Held("a", go), Held("b", go), Held("c", go), then=go.set)
        assert outcomes == [True, True, Busy()]
        assert len(pool) == 0


async def test_equal_works_share_one_run() -> None:
    go, begun = threading.Event(), list[str]()
    with HashPool(limit=1) as pool:
        same = Held("a", go, begun)
        assert await performed(pool, same, Held("a"), same, then=go.set) == [True] * 3
    assert begun == ["a"]


async def test_a_work_that_everybody_left_is_not_begun_and_can_be_asked_for_again() -> None:
    go, begun = threading.Event(), list[str]()
    with HashPool(threads=1, limit=2) as pool:
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
            first = tasks.create_task(pool.perform(Work(Held("a", go, begun))))
            left = [tasks.create_task(pool.perform(Work(Held("b", go, begun)))) for _ in range(2)]
            await asyncio.sleep(0)
            for task in left:
                task.cancel()
            await asyncio.wait(left)
            again = tasks.create_task(pool.perform(Work(Held("b", go, begun))))
            await asyncio.sleep(0)
            go.set()
        assert (first.result(), again.result()) == (True, True)
    assert begun == ["a", "b"]


async def test_one_who_leaves_does_not_disturb_the_others() -> None:
    go = threading.Event()
    with HashPool() as pool:
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
            stays, leaves = [tasks.create_task(pool.perform(Work(Held("a", go)))) for _ in range(2)]
            await asyncio.sleep(0)
            leaves.cancel()
            await asyncio.wait([leaves])
            go.set()
        assert stays.result() is True


async def test_what_a_work_raises_is_raised() -> None:
    def fail() -> bool:
        raise RuntimeError("broken")

    with HashPool() as pool, pytest.raises(RuntimeError, match="broken"):
        await pool.perform(Work(fail))


async def test_200_passwords_at_once_leave_the_event_loop_free_and_overflow_is_unavailable() -> None:
    stored = bcrypt.hashpw(b"wonder", bcrypt.gensalt(9))
    backend = Htpasswd(Secret(b"s"), HtpasswdSettings(per_user=Rate(burst=1e3, per_second=1)))
    users = parse_users(b"alice:" + stored).users
    backend.publish(build_realms([Declared(origin="f", realm=None, users=users)], default="default")[0])
    turns = 0
    with HashPool(limit=8) as pool:

        async def ask(password: str) -> Decision:
            value = "Basic " + b64encode(f"alice:{password}".encode()).decode()
            judged = backend.decide(Request(method="GET", path="/", headers=(("authorization", value),)), NOW)
            assert not isinstance(judged, Allow | Deny | Unavailable)
            effect = next(judged)
            with pytest.raises(StopIteration) as finished:
                judged.send(await pool.perform(effect))
            decision: Decision = finished.value.value
            return decision

        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
            passwords = ("wonder", *(f"guess{number}" for number in range(199)))
            asked = [tasks.create_task(ask(password)) for password in passwords]
            while not all(task.done() for task in asked):
                await asyncio.sleep(0)
                turns += 1
    kinds = [type(task.result()) for task in asked]
    assert {kind: kinds.count(kind) for kind in (Allow, Deny, Unavailable)} == {Allow: 1, Deny: 7, Unavailable: 192}
    # A loop that waits for each hash turns a few times for each; a free one turns all the time.
    assert turns > 400


NOW = datetime(2026, 1, 1, tzinfo=UTC)
