"""The decision log when decisions come faster than somebody reads it, or cannot be described."""

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.decision_record import Conclusion, Entry
from authplane.authserver.records.runtime.decision_log import ToFile, ToStandardOutput, open_decision_log
from authplane.authserver.records.runtime.metrics import CheckMetrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.policy.check.decision import Allow
from authplane.policy.check.request import Request

LIMIT: Final = 20.0


@pytest.mark.requirement("F07")
def test_a_pipe_that_nobody_reads_holds_up_no_decision_and_each_lost_line_is_counted() -> None:
    room, checks = 100, 5000
    made = Answer(reply=b"", request=Request(method="GET", path="/a"), decision=Allow())
    reader, writer = os.pipe()
    _fill(writer)
    read: list[bytes] = []
    drain = threading.Thread(target=lambda: read.append(_read_all(reader)), daemon=True)
    kept, missing = os.dup(1), list[int]()
    try:
        os.dup2(writer, 1)
        os.close(writer)
        with open_decision_log(ToStandardOutput(), room=room, lost=missing.append, grace=LIMIT) as log:
            observer = Observer("test", CheckMetrics(), lines=log)
            # Nobody reads before all checks have ended: they would never end if one waited for the pipe.
            for _ in range(checks):
                observer.passed(made, 0.001)
            lost = sum(missing)
            drain.start()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    drain.join(LIMIT)
    lines = [json.loads(line) for line in read[0].splitlines() if line]
    assert lost >= checks - 2 * room
    assert (sum("decision" in line for line in lines), sum(missing)) == (checks - lost, lost)


def _fill(pipe: int) -> None:
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n" * 4096)
    os.set_blocking(pipe, True)


def _read_all(pipe: int) -> bytes:
    with os.fdopen(pipe, "rb") as file:
        return file.read()


def test_an_entry_that_cannot_be_described_costs_its_own_line_alone(tmp_path: Path) -> None:
    path, odd = tmp_path / "decisions.log", Entry(0, "odd", "", Conclusion.ALLOW, *[""] * 9)  # type: ignore[arg-type]
    missing: list[int] = []
    with capture_logs() as complaints, open_decision_log(ToFile(path=path), lost=missing.append) as log:
        log.write("before\n")
        log.write(odd)
        log.write("after\n")
    before, lost, after = path.read_text(encoding="ascii").splitlines()
    assert (before, json.loads(lost)["count"], after, missing) == ("before", 1, "after", [1])
    assert [each["event"] for each in complaints] == ["failed to describe a decision"]
