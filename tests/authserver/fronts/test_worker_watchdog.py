"""A worker that hangs is noticed; one that is only slow is left alone."""

import json
import os
import signal

import pytest
from tests.support.authservers.server_process import Server
from tests.support.envoy.child_envoys import envoys_of
from tests.support.eventually import START_LIMIT, eventually

from authplane.authserver.fronts.runtime.pyvoy.worker_watchdog import BUSY_MISSES, IDLE_MISSES, Watchdog, processor_time

PATIENCE = START_LIMIT

SILENT = (False, 7)
CASES = {
    "it answers": ([(True, 7)] * 100, False),
    "it misses two": ([(True, 7), *[SILENT] * (IDLE_MISSES - 1), (True, 7)] * 5, False),
    "it stands still": ([(True, 7), *[SILENT] * IDLE_MISSES], True),
    "it is slow, and works": ([(False, used) for used in range(BUSY_MISSES - 1)], False),
    "it works for ever without an answer": ([(False, used) for used in range(BUSY_MISSES)], True),
    "it works in between": ([SILENT, SILENT, (False, 8), (False, 8), (False, 8)], False),
}


@pytest.mark.parametrize(("asked", "hangs"), CASES.values(), ids=CASES.keys())
def test_what_hangs(asked: list[tuple[bool, int]], hangs: bool) -> None:
    watchdog = Watchdog()
    found = [watchdog.asked(answered=answered, used=used) for answered, used in asked]
    assert any(found) is hangs


def test_processor_time_goes_on_while_a_process_works() -> None:
    begun = processor_time(os.getpid())
    assert begun is not None
    while processor_time(os.getpid()) == begun:
        pass
    assert processor_time(2**22 + 1) is None


@pytest.mark.real
async def test_a_worker_that_is_stopped_is_replaced_while_the_other_serves() -> None:
    server = Server()
    async with server.running("testserver", "--engine", "pyvoy", "--workers", "2"):
        first, second = envoys_of(server.child.pid)
        os.kill(first, signal.SIGSTOP)
        await _says(server, "killed a hung worker")
        await _says(server, "worker ended")

        async def replaced() -> bool:
            found = envoys_of(server.child.pid)
            return len(found) == 2 and first not in found and second in found

        await eventually(replaced, limit=PATIENCE)
        lines = [json.loads(line.text) for line in server.lines if line.text.startswith("{")]
        assert sum(line.get("event") == "killed a hung worker" for line in lines) == 1


async def _says(server: Server, words: str) -> None:
    async def holds() -> bool:
        return any(words in line.text for line in server.lines)

    await eventually(holds, limit=PATIENCE)
