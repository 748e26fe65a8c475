"""What programs see of our logs: nothing, unless they ask for it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

PROGRAM = """
import logging, sys, threading
import grpc
import authplane.grpc
from authplane.dataplane.runtime.connections.token_source import TokenSource

if sys.argv[1] == "loud":
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s", stream=sys.stdout)

told = threading.Event()
TokenSource("/nowhere/token").ask(lambda _: told.set())
assert told.wait(5)
server = {"server_uri": "127.0.0.1:1", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}
with authplane.grpc.channel("xds:///shop", xds={"xds_servers": [server]}) as channel:
    try:
        channel.unary_unary("/a/b")(b"", timeout=5)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE
"""


def run(program: Path, how: str) -> tuple[int, set[str], str]:
    program.write_text(PROGRAM, encoding="utf-8")
    done = subprocess.run([sys.executable, str(program), how], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, set(done.stdout.splitlines()), done.stderr


def test_a_program_that_does_not_ask_for_logs_sees_none(tmp_path: Path) -> None:
    assert run(tmp_path / "program.py", "quiet") == (0, set(), "")


@pytest.mark.parametrize("line", ["authplane.tokens WARNING", "authplane.xds INFO"])
def test_a_program_that_asks_for_logs_gets_them(tmp_path: Path, line: str) -> None:
    code, lines, errors = run(tmp_path / "program.py", "loud")
    assert (code, errors) == (0, "")
    assert line in lines
