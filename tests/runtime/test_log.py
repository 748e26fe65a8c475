"""The log of a process."""

import io
import json
import logging
import sys
from collections.abc import Iterator

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
    assert "rebuilt" in text
    assert "\x1b" not in text


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
