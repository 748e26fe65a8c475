"""The log of a process."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import structlog

from authplane.runtime.log import LogFormat, set_up_log


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_lines_are_json_where_no_person_reads(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log()
    structlog.stdlib.get_logger().info("rebuilt", seconds=1)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["seconds"]) == ("rebuilt", "info", 1)


def test_lines_are_text_if_asked_for_and_without_colours_outside_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogFormat.TEXT)
    structlog.stdlib.get_logger().info("rebuilt", seconds=1)
    text = capsys.readouterr().err
    assert re.fullmatch(r"\d\d:\d\d:\d\d rebuilt: seconds 1\n", text)


class Case(NamedTuple):
    level: str
    event: str
    facts: dict[str, object]
    want: str


CASES = {
    "values are words": Case(
        "info",
        "fetched issuer keys",
        {"issuer": "https://a", "keys": ["k1", "k2"]},
        "fetched issuer keys: issuer https://a, keys k1 k2",
    ),
    "names have no underscores": Case(
        "info", "worker restarted", {"exit_status": 1}, "worker restarted: exit status 1"
    ),
    "nothing, and yes or no": Case("info", "x", {"a": None, "b": True, "c": ()}, "x: a none, b yes, c none"),
    "the reason and the remedy are sentences": Case(
        "error",
        "cannot connect to the policy server",
        {"address": "127.0.0.1:9443", "why": "connection refused.", "fix": "Start it."},
        "error: cannot connect to the policy server: address 127.0.0.1:9443: connection refused. Start it.",
    ),
    "a reason alone": Case("info", "did not probe", {"why": "it is a socket"}, "did not probe: it is a socket"),
    "a warning says so": Case("warning", "rejected configuration", {}, "warning: rejected configuration"),
    "control characters are escaped": Case("error", "x", {"path": "/a\x1b[2J"}, "error: x: path /a\\x1b[2J"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_text_is_words_for_people(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogFormat.TEXT)
    getattr(structlog.stdlib.get_logger(), case.level)(case.event, **case.facts)
    assert capsys.readouterr().err[len("10:20:30 ") :] == f"{case.want}\n"


def test_an_exception_follows_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(LogFormat.TEXT)
    try:
        int("broken")
    except ValueError:
        structlog.stdlib.get_logger().exception("rebuild failed")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(" error: rebuild failed")
    assert lines[-1].startswith("ValueError: invalid literal")


def test_lower_levels_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_log(level=logging.WARNING)
    structlog.stdlib.get_logger().info("rebuilt")
    assert capsys.readouterr().err == ""


class Full(io.StringIO):
    """A log on a full disk."""

    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_line_that_cannot_be_written_is_lost_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_log()
    log = structlog.stdlib.get_logger()
    closed = io.StringIO()
    closed.close()
    for stream in (Full(), closed):
        monkeypatch.setattr(sys, "stderr", stream)
        log.error("nobody will know")
