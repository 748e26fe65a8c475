"""Who is told of a check where there are several backends."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import pytest
from tests.policy.checks import check

from authplane.authserver.backends.backend_choice import Branch, ByPath, Choice
from authplane.authserver.fronts.runtime.answer_checks import Checks
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.authserver.runtime.observed_choice import Choosing
from authplane.policy.check.decision import Allow, Decision
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Busy, Effect, Flow, Outcome, Work

NOBODY: Final = "-"


class Quick:
    """Allows at once."""

    name: Final = "quick"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        return Allow()


class Slow:
    """Allows after work."""

    name: Final = "slow"

    def decide(self, _request: Request, _now: datetime) -> Decision | Flow:
        return self._work()

    def _work(self) -> Flow:
        yield Work(lambda: True)
        return Allow()


class Broken:
    """Raises."""

    name: Final = "broken"

    def decide(self, _request: Request, _now: datetime) -> Decision:
        raise KeyError("hunter2")


class Door:
    """Checks with three backends, and what was counted of each."""

    def __init__(self, perform: Callable[[Effect], Awaitable[Outcome]], *, in_flight: int = 10) -> None:
        self._metrics = Metrics()
        branches = [Branch(each.name, (ByPath(f"/{each.name}"),), each) for each in (Quick(), Slow(), Broken())]
        observers = {branch.name: self._observer(branch.name) for branch in branches}
        choosing = Choosing(Choice(branches), observers, self._observer(NOBODY))
        self._checks = Checks(choosing, observer=choosing, perform=perform, in_flight=in_flight)

    def _observer(self, name: str) -> Observer:
        return Observer(name, self._metrics.checks(name))

    async def ask(self, path: str, *, limit: float | None = None) -> None:
        await self._checks.reply(check(path).SerializeToString(), limit=limit)

    async def ask_nonsense(self) -> None:
        await self._checks.reply(b"\xff")

    def counted(self) -> dict[str, float]:
        lines = [line.rpartition(" ") for line in self._metrics.text().decode().splitlines()]
        names = ("authplane_checks_total", "authplane_checks_in_flight", "authplane_checks_shed_total")
        return {name: float(value) for name, _, value in lines if name.startswith(names) and float(value)}


def total(backend: str, decision: str) -> str:
    return f'authplane_checks_total{{backend="{backend}",decision="{decision}"}}'


async def at_once(effect: Effect) -> Outcome:
    return effect.run() if isinstance(effect, Work) else Busy()


async def test_each_backend_is_told_of_its_own_checks_and_nobody_of_the_rest() -> None:
    door = Door(at_once)
    for path in ("/quick", "/slow", "/broken", "/none", "/quick/../slow"):
        await door.ask(path)
        await door.ask_nonsense()
    assert door.counted() == {
        total("quick", "allow"): 1,
        total("slow", "allow"): 1,
        total("broken", "failed"): 1,
        total(NOBODY, "deny"): 7,
    }


async def test_a_check_that_waits_is_told_to_its_backend_whoever_is_asked_meanwhile() -> None:
    go = asyncio.Event()

    async def wait(effect: Effect) -> Outcome:
        await go.wait()
        return effect.run() if isinstance(effect, Work) else Busy()

    door = Door(wait, in_flight=2)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(door.ask("/slow"))
        await asyncio.sleep(0)
        await door.ask("/slow")
        await door.ask("/quick")
        await door.ask_nonsense()
        assert door.counted() == {
            'authplane_checks_in_flight{backend="slow"}': 2,
            'authplane_checks_shed_total{backend="slow"}': 1,
            total("quick", "allow"): 1,
            total(NOBODY, "deny"): 1,
        }
        go.set()
    assert door.counted()[total("slow", "allow")] == 2


@pytest.mark.parametrize("limit", [0.0, 0.01])
async def test_a_check_that_is_late_is_told_to_its_backend(limit: float) -> None:
    async def never(_: Effect) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    door = Door(never)
    await door.ask("/slow", limit=limit)
    assert door.counted() == {total("slow", "unavailable"): 1}


async def test_a_check_that_begins_after_another_was_asked_is_told_to_its_own_backend() -> None:
    door = Door(at_once)
    begun = door._checks.begin(check("/slow").SerializeToString())
    assert not isinstance(begun, bytes)
    await door.ask_nonsense()
    await begun
    assert door.counted() == {total("slow", "allow"): 1, total(NOBODY, "deny"): 1}
