"""What every front does with a check."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar

import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.authservers.check_requests import check
from tests.support.authservers.told_checks import Told

from authplane.authserver.engine.check_engine import FAILED, Answer
from authplane.authserver.fronts.runtime.answer_checks import LATE, SHED, Checks
from authplane.authserver.records.runtime.traces import CallerTrace
from authplane.policy.check.decision import Allow, Deny, Unavailable
from authplane.policy.check.decision_id import decision_id
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Busy, Effect, Flow, Outcome, Work

BODY = check("/").SerializeToString()


@dataclass(slots=True)
class Asking:
    """Allows if the work says so."""

    name: ClassVar = "asking"
    closed: list[bool] = field(default_factory=list)

    def decide(self, _request: Request, _now: datetime) -> Flow:
        try:
            outcome = yield Work(lambda: True)
        finally:
            self.closed.append(True)
        match outcome:
            case True:
                return Allow()
            case False:
                return Deny(http_status=401, rule="no")
            case _:
                return Unavailable(cause="busy")


def code(reply: bytes) -> int:
    return pb.CheckResponse.FromString(reply).status.code


async def run_it(effect: Effect) -> Outcome:
    return effect.run() if isinstance(effect, Work) else Busy()


async def test_work_on_the_way_is_performed() -> None:
    told = Told()
    checks = Checks(Asking(), observer=told, perform=run_it)
    assert code(await checks.reply(BODY)) == 0
    assert (told.decisions, told.events) == ([Allow()], ["began", "decided"])


async def test_without_anybody_to_perform_it_there_is_no_decision() -> None:
    assert code(await Checks(Asking(), observer=Told()).reply(BODY)) == 14


async def test_work_that_fails_does_not_allow() -> None:
    async def broken(_: Effect) -> Outcome:
        raise KeyError("password")

    assert await Checks(Asking(), observer=Told(), perform=broken).reply(BODY) == FAILED


async def test_no_check_waits_longer_than_its_caller() -> None:
    async def never(_: Effect) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    backend = Asking()
    assert await Checks(backend, observer=Told(), perform=never).reply(BODY, limit=0.01) == LATE
    assert backend.closed == [True]


async def test_one_check_too_many_is_shed_at_once() -> None:
    release = asyncio.Event()

    async def slow(_: Effect) -> Outcome:
        await release.wait()
        return True

    checks = Checks(Asking(), observer=Told(), perform=slow, in_flight=2)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(checks.reply(BODY)) for _ in range(2)]
        await asyncio.sleep(0)
        assert await checks.reply(BODY) == SHED
        release.set()
    assert [code(task.result()) for task in waiting] == [0, 0]
    assert code(await checks.reply(BODY)) == 0


class Raising:
    """Fails like a backend with a bug."""

    name: ClassVar = "raising"

    def decide(self, _request: Request, _now: datetime) -> Deny:
        raise KeyError("group")


class Sudden:
    """Allows without asking for anything."""

    name: ClassVar = "sudden"

    def decide(self, _request: Request, _now: datetime) -> Allow:
        return Allow()


class Deaf(Told):
    """Breaks its promise not to raise."""

    def passed(self, made: Answer, seconds: float, caller: CallerTrace) -> None:
        raise OSError("full")


def test_a_check_that_waits_for_nothing_needs_no_event_loop() -> None:
    told = Told()
    reply = Checks(Sudden(), observer=told).begin(BODY)
    assert isinstance(reply, bytes)
    assert (code(reply), told.decisions, told.events) == (0, [Allow()], ["began", "decided"])


def test_a_backend_that_raises_at_once_does_not_allow() -> None:
    told = Told()
    assert Checks(Raising(), observer=told).begin(BODY) == FAILED
    assert (told.decisions, told.events) == ([], ["began", "failed"])


async def test_a_check_without_a_decision_is_recorded_with_its_request() -> None:
    async def never(_: Effect) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    body = check("/late", headers={"x-request-id": "a-1"}).SerializeToString()
    told = Told()
    assert await Checks(Asking(), observer=told, perform=never).reply(body, limit=0.01) == LATE
    assert Checks(Raising(), observer=told).begin(body) == FAILED
    requests = [each for each in told.undecided if isinstance(each, Request)]
    assert [(each.path, decision_id(each)) for each in requests] == [("/late", "a-1"), ("/late", "a-1")]
    assert told.events == ["began", "late", "began", "failed"]


def test_an_answer_applies_even_if_it_cannot_be_recorded() -> None:
    reply = Checks(Sudden(), observer=Deaf()).begin(BODY)
    assert isinstance(reply, bytes)
    assert code(reply) == 0


@pytest.mark.parametrize("reply", [SHED, LATE, FAILED])
def test_the_prepared_replies_do_not_allow(reply: bytes) -> None:
    assert code(reply) == 14
