"""The decision log: a thread writes lines to standard output or to a file, so that no check waits for it.

Checks put entries into a bounded queue; one thread formats their lines and writes many at a time. A full disk blocks or
fails only that thread. Lines that do not fit into the queue or cannot be written are counted, and the log reports the
number of missing lines as soon as it can. A thread, not a task: writing to a disk or a pipe blocks, and a blocked write
must not keep the program from exiting.

Several processes may write to one file. Each locks it while it appends some whole lines or renames it, and first checks
whether the file still has its name: a process that finds it renamed continues with the new file. A process without
lines checks every few seconds and closes a renamed file, since a removed file takes space until it is closed.
"""

import errno
import fcntl
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol, TypeAlias, assert_never

import structlog

from authplane.authserver.records.decision_record import Entry, time_text
from authplane.authserver.records.policy_record import entry_line
from authplane.core.values import dataclass
from authplane.runtime.child_processes import place_of

_log: Final = structlog.stdlib.get_logger()

_PAUSE: Final = 0.05
"""How many seconds lines are collected before they are written: waking a thread for each would cost every check."""
_ATOMIC: Final = 4096
"""What the kernel writes to a pipe in one piece, in bytes: lines of several processes do not mix then."""
_AT_ONCE: Final = 64 * 1024
"""What is written to a file in one piece, in bytes. A check may wait half a millisecond while the thread formats it;
writing lets checks continue."""
_LOOK: Final = 5.0
"""Seconds after which a process without new lines looks whether its file was moved away."""
_ATTEMPTS: Final = 100
"""How often in a row a file may have been renamed by others before a piece is given up."""


class LogUnusableError(Exception):
    """The file cannot be opened; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToStandardOutput:
    """Lines go to standard output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFile:
    """Lines go to a file that only its user can read; other processes of ours may write to it too."""

    path: Path
    largest: int = 100 * 1024 * 1024
    """In bytes: before the file becomes larger it is renamed, ``decisions.log`` to ``decisions.log.1``."""
    keep: int = 5
    """How many renamed files are kept."""


LogTarget: TypeAlias = ToStandardOutput | ToFile

Lost: TypeAlias = Callable[[int], None]
"""Told how many lines were lost, from any thread."""


class Sink(Protocol):
    """Where lines end up. It is used by one thread; what it raises is an `OSError`."""

    @property
    def largest_piece(self) -> int:
        """How many bytes are written at a time; a line that is longer is written alone."""

    def write(self, piece: bytes) -> None:
        """Write whole lines, or raise: a part of them may have been written then."""

    def reopen(self) -> None:
        """Open the target again: the file may have been moved."""

    def look(self) -> None:
        """Let go of a file that was moved away; nothing has to be written."""

    def close(self) -> None:
        """Let go of it."""


@contextmanager
def open_decision_log(
    target: LogTarget, *, room: int = 8192, lost: Lost = lambda _: None, grace: float = 1.5, look: float = _LOOK
) -> Iterator["DecisionLog"]:
    """Write a log while the block runs; at its end what is left is written, within ``grace`` seconds.

    Raises `LogUnusableError` if there is a file that cannot be opened.
    """
    log = DecisionLog(_sink(target), room=room, lost=lost, look=look)
    try:
        yield log
    finally:
        log.close(grace)


class DecisionLog:
    """Takes lines from any thread, at once: a check waits for no lock, no system call and no formatting."""

    def __init__(self, sink: Sink, *, room: int, lost: Lost, look: float = _LOOK) -> None:
        self._sink = sink
        self._look = look
        self._room = room
        self._told = lost
        self._lines: deque[Entry | str] = deque()
        self._lost = 0
        self._lost_lock = threading.Lock()
        self._wake = threading.Event()
        self._woken = False
        """Whether the writer will look at the queue again; quicker to read than the event."""
        self._stop = threading.Event()
        self._closed = False
        self._reopen = False
        self._broken = False
        self._writer = threading.Thread(target=self._run, name="decision log", daemon=True)
        self._writer.start()

    def write(self, line: Entry | str) -> None:
        """Take a line with its end, or what it is made of; or count it as lost if there is no room."""
        if len(self._lines) >= self._room or self._closed:
            self._lose(1)
            return
        self._lines.append(line)
        # Read after the line is in the queue; the writer clears it before it looks there.
        if not self._woken:
            self._woken = True
            self._wake.set()

    def reopen(self) -> None:
        """Open the file of the configured name now; one that was moved away is noticed within seconds anyway.

        Not for a handler of `signal.signal`, which may interrupt `write` in the middle; a handler of the loop is fine.
        """
        self._reopen = True
        self._wake.set()

    def close(self, grace: float) -> None:
        """Write what is left, within ``grace`` seconds; later lines are lost."""
        self._closed = True
        self._stop.set()
        self._wake.set()
        self._writer.join(grace)
        if self._writer.is_alive():
            _complain("closed the decision log before all lines were written", lines=len(self._lines))

    def _run(self) -> None:
        """Write until the log is closed and empty."""
        while not self._stop.is_set():
            if not self._wake.wait(self._look):
                with suppress(OSError):  # the next line will meet it, and say so
                    self._sink.look()
                continue
            self._stop.wait(_PAUSE)
            # Cleared before the lines are taken: one that comes later sets both again.
            self._wake.clear()
            self._woken = False
            self._write_all()
        self._write_all()
        with suppress(OSError):
            self._sink.close()

    def _write_all(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        written = 0
        try:
            if self._reopen:
                self._reopen = False
                self._sink.reopen()
            if lines and self._lost:
                self._report()
            for piece in _pieces(map(self._text, lines), self._sink.largest_piece):
                self._sink.write("".join(piece).encode("ascii"))
                written += len(piece)
        except Exception as error:  # noqa: BLE001 (whatever a sink does, the next lines may fare better)
            self._lose(len(lines) - written)
            self._failed(error)
        else:
            self._broken = self._broken and not lines

    def _text(self, line: Entry | str) -> str:
        """Format a line; if that fails, return a line that reports one missing line."""
        if isinstance(line, str):
            return line if line.isascii() else line.encode("ascii", "backslashreplace").decode("ascii")
        try:
            return entry_line(line)
        except Exception as error:  # noqa: BLE001 (a fault of ours must not cost the other lines)
            _complain("failed to describe a decision", error=place_of(error))
            self._tell(1)
            return _missing(1)

    def _report(self) -> None:
        """Say how many lines are missing."""
        missing = self._lost
        self._sink.write(_missing(missing).encode("ascii"))
        with self._lost_lock:
            self._lost -= missing

    def _lose(self, count: int) -> None:
        with self._lost_lock:
            self._lost += count
        self._tell(count)

    def _tell(self, count: int) -> None:
        try:
            self._told(count)
        except Exception as error:  # noqa: BLE001 (the writer must live)
            _complain("failed to count lost lines", error=_cause(error))

    def _failed(self, error: Exception) -> None:
        """Say it once, not for every batch."""
        if not self._broken:
            _complain("failed to write the decision log", error=_cause(error))
        self._broken = True


class _StandardOutput:
    """Writes to a descriptor, whatever it is; after a piece that was written in part, the next begins a line."""

    def __init__(self, descriptor: int = 1) -> None:
        self._number = descriptor
        self._torn = False
        self.largest_piece: Final = _AT_ONCE if _is_file(descriptor) else _ATOMIC

    def write(self, piece: bytes) -> None:
        rest = memoryview(b"\n" + piece if self._torn else piece)
        while rest:
            rest = rest[os.write(self._number, rest) :]
            self._torn = bool(rest)

    def reopen(self) -> None:
        pass  # there is no name to open

    def look(self) -> None:
        pass

    def close(self) -> None:
        pass  # it belongs to the process


class _File:
    """Appends to a file and renames it when it is full."""

    def __init__(self, target: ToFile) -> None:
        self._target = target
        self._number: int | None = None
        # Not much of a small file, which would be renamed long before it is full.
        self.largest_piece: Final = max(_ATOMIC, min(_AT_ONCE, target.largest // 16))
        self._open()

    def write(self, piece: bytes) -> None:
        for _ in range(_ATTEMPTS):
            number = self._open() if self._number is None else self._number
            with _locked(number):
                found = os.fstat(number)
                if self._is_named(found):
                    size = found.st_size
                    if not size or size + len(piece) <= self._target.largest:
                        _append(number, piece, size)
                        return
                    self._rename()
            self.close()
        raise OSError(0, "it is renamed repeatedly")

    def reopen(self) -> None:
        self.close()
        self._open()

    def look(self) -> None:
        if self._number is not None and not self._is_named(os.fstat(self._number)):
            self.close()

    def close(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            os.close(number)

    def _open(self) -> int:
        # Append, so that truncating the file does not leave a hole; and do not follow a link to elsewhere.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        number = os.open(self._target.path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise OSError(0, "it is not a regular file")
        self._number = number
        return number

    def _is_named(self, found: os.stat_result) -> bool:
        """Tell whether the open file still has the configured name; if not, it was moved."""
        try:
            return os.path.samestat(self._target.path.lstat(), found)
        except FileNotFoundError:
            return False

    def _rename(self) -> None:
        path, keep = self._target.path, self._target.keep
        names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, keep + 1))]
        # The file itself is renamed last: until then no process creates a new one, which would have to be renamed too.
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)
        if not keep:
            path.unlink(missing_ok=True)


@contextmanager
def _locked(number: int) -> Iterator[None]:
    """Keep our other processes from the file; the kernel releases the lock when the process ends."""
    fcntl.flock(number, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(number, fcntl.LOCK_UN)


def _append(number: int, piece: bytes, size: int) -> None:
    """Append whole lines to a locked file, or nothing."""
    rest = memoryview(piece)
    try:
        while rest:
            rest = rest[os.write(number, rest) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(number, size)
        raise


def _sink(target: LogTarget) -> Sink:
    match target:
        case ToStandardOutput():
            return _StandardOutput()
        case ToFile(path=path):
            try:
                return _File(target)
            except OSError as error:
                reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
                raise LogUnusableError(
                    f"Cannot write the decision log {path}: {reason}. Use a file that this user can write."
                ) from error
        case _:
            assert_never(target)


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # it is closed: the first line will meet it, and say so
        return False


def _pieces(lines: Iterable[str], largest: int) -> Iterator[list[str]]:
    """Group lines so that each group can be written in one piece; a line that is too long is alone."""
    piece: list[str] = []
    size = 0
    for line in lines:
        length = len(line)
        if piece and size + length > largest:
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += length
    if piece:
        yield piece


def _missing(count: int) -> str:
    """Write the line that says how many lines are missing."""
    return f'{{"time":"{time_text(time.time())}","event":"lines lost","count":{count}}}\n'


def _cause(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else place_of(error)


def _complain(event: str, **about: str | int) -> None:
    """Log a fault of the log. If that fails too, there is nowhere left to say it."""
    with suppress(Exception):
        _log.warning(event, **about)
