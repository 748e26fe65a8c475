"""A test that is not marked ``real`` starts no program and stays on this machine, whatever it tries."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest

from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import run_envoy


async def _ignore(_: Line) -> None: ...


async def _start_envoy() -> None:
    async with run_envoy("{}", sink=_ignore):
        pass


async def _start_program() -> None:
    async with run_process([sys.executable, "-c", ""], sink=_ignore):
        pass


def _connect(host: str) -> None:
    with socket.socket() as opened:
        opened.settimeout(1)
        opened.connect((host, 9))


ATTEMPTS: Final[dict[str, Callable[[], object]]] = {
    "Envoy": lambda: asyncio.run(_start_envoy()),
    "a program of ours": lambda: asyncio.run(_start_program()),
    "a program": lambda: subprocess.run(["true"], check=False),
    "a shell": lambda: os.system("true"),  # noqa: S605 (it is refused)
    "a copy of the test": os.fork,
    "another machine": lambda: _connect("192.0.2.1"),
}


@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=ATTEMPTS.keys())
def test_a_fast_test_cannot_start_or_reach(attempt: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"mark it with @pytest\.mark\.real"):
        attempt()


def test_a_fast_test_may_talk_to_itself() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass


@pytest.mark.real
def test_a_real_one_may_start_programs() -> None:
    assert subprocess.run(["true"], check=False).returncode == 0
