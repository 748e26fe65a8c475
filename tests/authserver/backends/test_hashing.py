"""Work beside the event loop."""

import asyncio
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import bcrypt
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.authservers.check_requests import check
from tests.support.authservers.told_checks import Told
from tests.support.eventually import eventually

from authplane.authserver.backends.htpasswd.crypts import SHA512, sha_crypt
from authplane.authserver.backends.htpasswd.htpasswd import Htpasswd, HtpasswdSettings
from authplane.authserver.backends.htpasswd.user_realms import Declared, build_realms
from authplane.authserver.backends.htpasswd.users import parse_users
from authplane.authserver.backends.runtime.hashing import MOST_LEFT, HashPool
from authplane.authserver.fronts.runtime.answer_checks import Checks
from authplane.core.secret import Secret
from authplane.policy.check.throttle import Rate
from authplane.policy.verdicts.effects import Busy, Outcome, Work

LIMIT = 5.0
ROUNDS = 50_000
"""Of SHA-512: many times the usual, so that hashing lasts while the event loop is watched."""


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


async def left_alone(pool: HashPool, held: Held, work: Work) -> None:
    """Ask for a work, leave as soon as it has begun, and let it end then."""

    async def has_begun() -> bool:
        return bool(held.begun)

    async def has_ended() -> bool:
        return len(pool) == 0

    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(pool.perform(work))
        await eventually(has_begun)
        asking.cancel()
        await asyncio.wait([asking])
        assert len(pool) == 1
        held.go.set()
        await eventually(has_ended)


async def runs_again(pool: HashPool, name: str, key: bytes) -> bool:
    """Ask for a work and tell whether it was done for us."""
    held = Held(name)
    held.go.set()
    assert await pool.perform(Work(held, key)) is True
    return bool(held.begun)


async def test_who_comes_after_everybody_left_has_the_outcome_of_a_work_that_had_begun() -> None:
    held = Held("a")
    with HashPool() as pool:
        await left_alone(pool, held, Work(held, b"a"))
        assert [await runs_again(pool, "a", b"a") for _ in range(2)] == [False, True]


async def test_an_outcome_without_a_name_is_not_kept() -> None:
    held = Held("a")
    with HashPool() as pool:
        await left_alone(pool, held, Work(held))
        assert await runs_again(pool, "a", b"")


@pytest.mark.slow
async def test_few_outcomes_are_kept_and_the_oldest_goes_first() -> None:
    with HashPool() as pool:
        for number in range(MOST_LEFT + 1):
            held = Held(str(number))
            await left_alone(pool, held, Work(held, b"%d" % number))
        again = [await runs_again(pool, str(number), b"%d" % number) for number in range(MOST_LEFT + 1)]
    assert again == [True] + [False] * MOST_LEFT


async def test_an_error_of_a_work_without_callers_has_no_effect() -> None:
    held = Held("a")

    def fail() -> bool:
        held()
        raise RuntimeError("broken")

    with HashPool() as pool:
        await left_alone(pool, held, Work(fail, b"a"))
        assert await runs_again(pool, "a", b"a")


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


async def lags(until: asyncio.Event) -> list[float]:
    """Measure again and again how late the event loop comes back, in seconds, apart from what other programs take."""
    found = []
    while not until.is_set():
        begun, queued = perf_counter(), _queued()
        await asyncio.sleep(0.001)
        found.append(perf_counter() - begun - (_queued() - queued))
    return sorted(found)


def _queued() -> float:
    """Return how long this thread was ready to run while something else did, in seconds."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


def stored_bcrypt() -> str:
    return bcrypt.hashpw(b"wonder", bcrypt.gensalt(12)).decode()


def stored_sha512() -> str:
    return f"$6$rounds={ROUNDS}$salt${sha_crypt(SHA512, b'wonder', b'salt', ROUNDS)}"


@pytest.mark.slow
@pytest.mark.requirement("H12")
@pytest.mark.parametrize("stored", [stored_bcrypt, stored_sha512])
async def test_200_passwords_at_once_leave_the_event_loop_free_and_overflow_is_503(stored: Callable[[], str]) -> None:
    backend = Htpasswd(Secret(b"s"), HtpasswdSettings(per_user=Rate(burst=1e3, per_second=1)))
    users = parse_users(f"alice:{stored()}".encode()).users
    backend.publish(build_realms([Declared(origin="f", realm=None, users=users)], default="default")[0])
    with HashPool(limit=8) as pool:
        checks = Checks(backend, observer=Told(), perform=pool.perform)
        over = asyncio.Event()
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(checks.reply(about(word))) for word in ("wonder", *map(str, range(199)))]
            await asyncio.sleep(0)  # each has begun its work or heard that there is no room
            measured = tasks.create_task(lags(over))
            await asyncio.wait(asked)
            over.set()
    replies = [pb.CheckResponse.FromString(task.result()) for task in asked]
    codes = [reply.status.code for reply in replies]
    assert {code: codes.count(code) for code in set(codes)} == {0: 1, 16: 7, 14: 192}
    assert {reply.error_response.status.code for reply in replies if reply.status.code == 14} == {503}
    assert measured.result()[int(len(measured.result()) * 0.99)] < 0.05


def about(password: str) -> bytes:
    value = "Basic " + b64encode(f"alice:{password}".encode()).decode()
    return check("/", headers={"authorization": value}).SerializeToString()


def test_the_interpreter_is_shared_as_before_when_the_pool_has_ended() -> None:
    before = sys.getswitchinterval()
    with HashPool():
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
