"""More checks than a server can take: quick refusals, and no allowance that comes too late."""

import asyncio
from pathlib import Path
from time import perf_counter
from typing import Final

import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.authservers.check_requests import check
from tests.support.authservers.front_backends import Gate
from tests.support.authservers.told_checks import Told

from authplane.authserver.fronts.runtime.answer_checks import Checks
from authplane.policy.verdicts.effects import Effect, Outcome

BODY: Final = check("/slow").SerializeToString()
FREE: Final = check("/free").SerializeToString()
ROOM: Final = 10


class Held:
    """Lets every work succeed, but not before it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def perform(self, _: Effect) -> Outcome:
        await self.go.wait()
        return True


def _meaning(reply: bytes) -> tuple[int, int]:
    read = pb.CheckResponse.FromString(reply)
    return read.status.code, read.error_response.status.code


@pytest.mark.requirement("E25")
async def test_ten_times_too_many_checks_are_shed_at_once_and_the_others_answered() -> None:
    held = Held()
    checks = Checks(Gate(Path("unused")), observer=Told(), perform=held.perform, in_flight=ROOM)
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        accepted = [tasks.create_task(checks.reply(BODY, limit=4)) for _ in range(ROOM)]
        await asyncio.sleep(0)
        begun = perf_counter()
        shed = [await checks.reply(BODY, limit=4) for _ in range(10 * ROOM)]
        took = (perf_counter() - begun) / len(shed)
        assert _meaning(await checks.reply(FREE)) == (0, 0)  # what needs not wait is not held up
        assert not any(task.done() for task in accepted)
        held.go.set()
    assert {_meaning(reply) for reply in shed} == {(14, 503)}
    assert took < 0.02
    assert [_meaning(task.result()) for task in accepted] == [(0, 0)] * ROOM
    assert _meaning(await checks.reply(BODY, limit=4)) == (0, 0)


@pytest.mark.requirement("E25")
async def test_an_allowance_that_comes_too_late_is_not_sent() -> None:
    held = Held()
    checks = Checks(Gate(Path("unused")), observer=Told(), perform=held.perform)
    late = await checks.reply(BODY, limit=0.02)
    held.go.set()
    assert _meaning(late) == (14, 503)
