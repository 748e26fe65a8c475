"""The decision log, with real files and pipes."""

import asyncio
import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs
from tests.support.eventually import START_LIMIT, eventually

from authplane.authserver.records.runtime.decision_log import (
    DecisionLog,
    LogUnusableError,
    ToFile,
    ToStandardOutput,
    open_decision_log,
)

LIMIT: Final = 5.0
GRACE: Final = 5.0


class Stuck:
    """A sink that takes the first piece and then blocks until it is let go: a pipe that nobody reads."""

    largest_piece: Final = 4096

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.reached = threading.Event()
        self.released = threading.Event()

    def write(self, piece: bytes) -> None:
        self.reached.set()
        assert self.released.wait(LIMIT)
        self.pieces.append(piece)

    def reopen(self) -> None:
        pass

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass


class Failing:
    """A sink on a disk that is full until it is not."""

    largest_piece: Final = 4096

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.failed = threading.Event()
        self.pieces: list[bytes] = []

    def write(self, piece: bytes) -> None:
        error = self.error
        if error is not None:
            self.failed.set()
            raise error
        self.pieces.append(piece)

    def reopen(self) -> None:
        pass

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def _log(
    sink: Stuck | Failing, *, room: int = 100, lost: Callable[[int], None] = lambda _: None
) -> Iterator[DecisionLog]:
    log = DecisionLog(sink, room=room, lost=lost)
    try:
        yield log
    finally:
        log.close(GRACE)


def _read(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").splitlines()


def _said(pieces: list[bytes]) -> list[object]:
    """Return the lines of a sink, and for a report of lost lines its count."""
    lines = b"".join(pieces).decode().splitlines()
    return [json.loads(line)["count"] if "lines lost" in line else line for line in lines]


def test_lines_are_in_the_file_in_their_order_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    lines = [f"line {number}" for number in range(3000)]
    with open_decision_log(ToFile(path=path)) as log:
        for line in lines:
            log.write(f"{line}\n")
    assert _read(path) == lines
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_go_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with open_decision_log(ToStandardOutput()) as log:
        log.write("one\n")
        log.write("two\n")
    assert capfd.readouterr().out == "one\ntwo\n"


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    for line in ("one\n", "two\n"):
        with open_decision_log(ToFile(path=path)) as log:
            log.write(line)
    assert _read(path) == ["one", "two"]


def test_a_full_file_is_renamed_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    for number in range(5):
        with open_decision_log(ToFile(path=path, largest=10, keep=2)) as log:
            log.write(f"line {number}\n")
    assert {each.name: _read(each) for each in tmp_path.iterdir()} == {
        "decisions.log": ["line 4"],
        "decisions.log.1": ["line 3"],
        "decisions.log.2": ["line 2"],
    }


def test_without_files_to_keep_a_full_one_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    for number in range(3):
        with open_decision_log(ToFile(path=path, largest=10, keep=0)) as log:
            log.write(f"line {number}\n")
    assert {each.name: _read(each) for each in tmp_path.iterdir()} == {"decisions.log": ["line 2"]}


def test_a_burst_is_spread_over_files_of_the_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    with open_decision_log(ToFile(path=path, largest=10_000, keep=50)) as log:
        for number in range(4000):
            log.write(f"line {number:05}\n")
    files = sorted(tmp_path.iterdir(), key=lambda each: -int(each.suffix[1:]) if each.suffix != ".log" else 0)
    assert [line for each in files for line in _read(each)] == [f"line {number:05}" for number in range(4000)]
    assert max(each.stat().st_size for each in files) <= 10_000


def test_reopening_begins_a_file_where_the_old_one_was_moved_away(tmp_path: Path) -> None:
    path, moved = tmp_path / "decisions.log", tmp_path / "moved"
    with open_decision_log(ToFile(path=path)) as log:
        path.rename(moved)
        log.reopen()
        log.write("after\n")
    assert (_read(path), _read(moved)) == (["after"], [])


def test_a_file_that_was_moved_away_is_let_go_without_new_lines(tmp_path: Path) -> None:
    path, moved = tmp_path / "decisions.log", tmp_path / "moved"

    async def gone() -> bool:
        return not _has_open(moved)

    with open_decision_log(ToFile(path=path), look=0.05) as log:
        path.rename(moved)
        assert _has_open(moved)
        asyncio.run(eventually(gone))
        # Nothing is begun until there is something to write.
        assert not path.exists()
        log.write("after\n")
    assert (_read(path), _read(moved)) == (["after"], [])


def _has_open(path: Path) -> bool:
    numbers = (each.name for each in Path("/proc/self/fd").iterdir())
    return any(os.path.realpath(f"/proc/self/fd/{number}") == str(path) for number in numbers)


def test_a_file_that_cannot_be_reopened_costs_lines_until_it_can(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = folder / "decisions.log"
    missing: list[int] = []
    gone = threading.Event()

    def lost(count: int) -> None:
        missing.append(count)
        gone.set()

    with capture_logs() as complaints, open_decision_log(ToFile(path=path), lost=lost) as log:
        folder.rename(tmp_path / "old")
        log.reopen()
        log.write("nowhere to go\n")
        assert gone.wait(LIMIT)
        folder.mkdir()
        log.write("here again\n")
    assert missing == [1]
    assert _said([path.read_bytes()]) == [1, "here again"]
    assert [each["event"] for each in complaints] == ["failed to write the decision log"]


def test_writing_never_waits_and_what_finds_no_room_is_counted_and_reported() -> None:
    sink, missing = Stuck(), list[int]()
    with _log(sink, room=3, lost=missing.append) as log:
        log.write("first\n")
        assert sink.reached.wait(LIMIT)
        for number in range(5):
            log.write(f"line {number}\n")
        assert missing == [1, 1]
        sink.released.set()
    assert _said(sink.pieces) == ["first", 2, "line 0", "line 1", "line 2"]


@pytest.mark.requirement("F07")
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), BrokenPipeError(), ValueError("hunter2")]
)
def test_a_broken_sink_costs_lines_until_it_is_whole_and_is_complained_of_once(error: Exception) -> None:
    sink, missing = Failing(error), list[int]()
    with capture_logs() as complaints, _log(sink, lost=missing.append) as log:
        for _ in range(2):
            log.write("lost\n")
            assert sink.failed.wait(LIMIT)
            sink.failed.clear()
        sink.error = None
        log.write("found\n")
    assert _said(sink.pieces) == [2, "found"]
    assert sum(missing) == 2
    assert [each["event"] for each in complaints] == ["failed to write the decision log"]
    assert "hunter2" not in str(complaints)


def test_a_blocked_log_does_not_delay_the_exit() -> None:
    sink = Stuck()
    log = DecisionLog(sink, room=10, lost=lambda _: None)
    log.write("stuck\n")
    assert sink.reached.wait(LIMIT)
    with capture_logs() as complaints:
        log.close(0.01)
    assert [each["event"] for each in complaints] == ["closed the decision log before all lines were written"]
    sink.released.set()


def test_a_line_after_the_end_is_lost() -> None:
    missing: list[int] = []
    sink = Stuck()
    sink.released.set()
    log = DecisionLog(sink, room=10, lost=missing.append)
    log.close(GRACE)
    log.write("late\n")
    assert (missing, sink.pieces) == ([1], [])


def test_lines_of_many_threads_all_arrive(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"

    def write(name: str) -> None:
        for number in range(1000):
            log.write(f"{name} {number}\n")

    with open_decision_log(ToFile(path=path), room=10_000) as log:
        writers = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(LIMIT)
    assert sorted(_read(path)) == sorted(f"{name} {n}" for name in "abcd" for n in range(1000))


def test_a_pipe_without_a_reader_costs_lines_and_nothing_else() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    kept = os.dup(1)
    missing: list[int] = []
    try:
        os.dup2(writer, 1)
        with capture_logs() as complaints, open_decision_log(ToStandardOutput(), lost=missing.append) as log:
            log.write("nobody reads this\n")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(writer)
    assert missing == [1]
    assert complaints[0]["error"] == "Broken pipe"


def test_a_line_that_was_written_in_part_does_not_spoil_the_next() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    kept = os.dup(1)
    gone = threading.Event()
    try:
        os.dup2(writer, 1)
        with capture_logs(), open_decision_log(ToStandardOutput(), lost=lambda _: gone.set()) as log:
            log.write("x" * 1_000_000 + "\n")
            assert gone.wait(LIMIT)
            held = os.read(reader, 1_000_000)
            log.write("next\n")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(writer)
    with os.fdopen(reader, "rb") as rest:
        lines = (held + rest.read()).decode().splitlines()
    assert set(lines[0]) == {"x"}
    assert json.loads(lines[1])["count"] == 1
    assert lines[2:] == ["next"]


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to("/dev/null")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


UNUSABLE: Final = {
    "a folder": (_folder, "Is a directory"),
    "a link": (_link, "it is a symbolic link"),
    "a pipe": (_pipe, "No such device or address"),
}


@pytest.mark.parametrize(("make", "reason"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_is_no_file_is_named_at_the_start(tmp_path: Path, make: Callable[[Path], None], reason: str) -> None:
    path = tmp_path / "decisions.log"
    make(path)
    with pytest.raises(LogUnusableError, match=f"^Cannot write the decision log {path}: {reason}\\. Use a file"):
        open_decision_log(ToFile(path=path)).__enter__()


def test_a_folder_that_is_not_there_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(LogUnusableError, match=r"No such file or directory\."):
        open_decision_log(ToFile(path=tmp_path / "no" / "decisions.log")).__enter__()


def test_the_writer_outlives_a_counter_that_fails_and_a_line_that_is_not_ascii() -> None:
    def fail(_count: int) -> None:
        raise ZeroDivisionError

    sink = Failing(OSError(errno.ENOSPC, "No space left on device"))
    with capture_logs() as complaints, _log(sink, lost=fail) as log:
        log.write("lost\n")
        assert sink.failed.wait(LIMIT)
        sink.error = None
        log.write("\udcff\n")
    assert _said(sink.pieces) == [1, "\\udcff"]
    assert {each["event"] for each in complaints} == {"failed to write the decision log", "failed to count lost lines"}


WRITER: Final = """\
import sys
from pathlib import Path
from authplane.authserver.records.runtime.decision_log import ToFile, open_decision_log
name, path = sys.argv[1:]
with open_decision_log(ToFile(path=Path(path), largest=50_000, keep=100), room=10_000, grace=30) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(5000):
        log.write(f"{name} {number:04} {'x' * 90}\\n")
"""


@pytest.mark.real
def test_several_processes_share_a_file_and_rename_it_together(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, name, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in "abc"
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.communicate("go\n", timeout=START_LIMIT)
        assert writer.returncode == 0
    files = list(tmp_path.iterdir())
    assert len(files) > 20
    lines = [line for each in files for line in _read(each)]
    assert sorted(lines) == sorted(f"{name} {number:04} {'x' * 90}" for name in "abc" for number in range(5000))
    assert max(each.stat().st_size for each in files) <= 50_000


def test_a_file_that_was_moved_away_is_left_without_a_word(tmp_path: Path) -> None:
    path, moved = tmp_path / "decisions.log", tmp_path / "moved"
    with open_decision_log(ToFile(path=path)) as log:
        path.rename(moved)
        log.write("after\n")
    assert (_read(path), _read(moved)) == (["after"], [])


def test_a_piece_that_was_written_in_part_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "decisions.log"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    gone = threading.Event()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
        with capture_logs(), open_decision_log(ToFile(path=path), lost=lambda _: gone.set()) as log:
            log.write("fits\n")
            log.write("does not fit into the room that there is\n")
            assert gone.wait(LIMIT)
            assert _read(path) == []
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            log.write("fits again\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert _said([path.read_bytes()]) == [2, "fits again"]
