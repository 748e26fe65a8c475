"""Tokens out of a file, for calls on any thread and any event loop."""

import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from authplane.core.secret import Secret
from authplane.runtime.child_processes import place_of
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer, JwtFile, Moment, Queued, Unreadable
from authplane.xds.bootstrap.jwt_token import MOST_BYTES

_log: Final = logging.getLogger("authplane.tokens")

Waiter: TypeAlias = Callable[[Answer], None]
"""Told of the answer on some thread; must not wait there."""
Read: TypeAlias = Callable[[str], bytes | Unreadable]

_PATIENCE: Final = 5.0
"""How many seconds a read may take."""
_random: Final = secrets.SystemRandom()


def read_clocks() -> Moment:
    """Return the time."""
    return Moment(wall=time.time(), steady=time.monotonic())


def read_token_file(path: str) -> bytes | Unreadable:
    """Return all of a regular file; pipes and devices could keep us waiting, or never end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        return Unreadable(_words(error))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return Unreadable("not a regular file")
        return _whole(descriptor)
    except OSError as error:
        return Unreadable(_words(error))
    finally:
        os.close(descriptor)


class TokenSource:
    """The token in a file: read when a call needs it, one read at a time, in a separate thread."""

    def __init__(
        self,
        path: str,
        *,
        read: Read = read_token_file,
        clock: Callable[[], Moment] = read_clocks,
        draw: Callable[[], float] = _random.random,
        patience: float = _PATIENCE,
    ) -> None:
        if not path:
            raise ValueError("The path of the token file is empty. Set a path.")
        self.path: Final = path
        self._read = read
        self._clock = clock
        self._draw = draw
        self._patience = patience
        self._lock = threading.Lock()
        self._state = JwtFile()
        self._waiting: list[Waiter] = []
        self._attempt: _Attempt | None = None
        self._hanging = False

    def ask(self, waiter: Waiter) -> Answer | None:
        """Return the answer for a new call; None if it must wait: ``waiter`` then receives the answer."""
        attempt = None
        with self._lock:
            started = self._state.call_started(self._clock())
            if isinstance(started.answer, Queued):
                self._waiting.append(waiter)
            if started.read:
                attempt = self._attempt = _Attempt()
        if attempt is not None:
            self._begin(attempt)
        return None if isinstance(started.answer, Queued) else started.answer

    def refused(self, token: Secret[str]) -> None:
        """Take that a server did not accept a token: the file is read again, though not each time."""
        attempt = None
        with self._lock:
            if self._state.call_refused(token, self._clock()):
                attempt = self._attempt = _Attempt()
        if attempt is not None:
            self._begin(attempt)

    def _begin(self, attempt: "_Attempt") -> None:
        if self._hanging:
            # A thread that hangs in the kernel cannot be ended; there shall not be a second one.
            self._finish(attempt, Unreadable("the previous read has not ended"))
            return
        attempt.limit = threading.Timer(self._patience, self._give_up, (attempt,))
        attempt.limit.daemon = True
        try:
            attempt.limit.start()
            # A daemon: a file system that hangs must not keep the program from ending.
            threading.Thread(target=self._run, args=(attempt,), daemon=True, name="token file").start()
        except RuntimeError:
            self._finish(attempt, Unreadable("cannot start a thread"))

    def _run(self, attempt: "_Attempt") -> None:
        try:
            content = self._read(self.path)
        except Exception as error:  # noqa: BLE001 (calls wait for an answer, whatever happened)
            content = Unreadable(place_of(error))
        self._finish(attempt, content)

    def _give_up(self, attempt: "_Attempt") -> None:
        self._finish(attempt, Unreadable(f"reading took longer than {self._patience:g} s"), hanging=True)

    def _finish(self, attempt: "_Attempt", content: bytes | Unreadable, *, hanging: bool = False) -> None:
        """Tell all who wait, if the attempt still counts."""
        with self._lock:
            if self._attempt is not attempt:
                # A read that ends after its time, or a limit that is reached just when it ends.
                self._hanging = self._hanging and hanging
                return
            self._attempt, self._hanging = None, self._hanging or hanging
            answer = self._state.read_ended(content, self._clock(), self._draw())
            waiting, self._waiting = self._waiting, []
        if attempt.limit is not None:
            attempt.limit.cancel()
        if not isinstance(answer, Bearer):
            _log.warning("no token from %s: %s", self.path, answer.message)
        for waiter in waiting:
            _tell(waiter, answer)


class _Attempt:
    """One read."""

    limit: threading.Timer | None = None


def _tell(waiter: Waiter, answer: Answer) -> None:
    try:
        waiter(answer)
    except Exception as error:  # noqa: BLE001 (the others wait as well)
        _log.error("token callback of a call failed: %s", place_of(error))


def _whole(descriptor: int) -> bytes | Unreadable:
    parts: list[bytes] = []
    size = 0
    while part := os.read(descriptor, MOST_BYTES + 1 - size):
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            return Unreadable(f"larger than {MOST_BYTES} bytes")
    return b"".join(parts)


def _words(error: OSError) -> str:
    return error.strerror or type(error).__name__
