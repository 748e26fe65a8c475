"""Time and reads that a test holds in its hands."""

import threading
import time
from dataclasses import dataclass, field

from authplane.dataplane.runtime.connections.token_source import read_token_file
from authplane.xds.bootstrap.jwt_file_state import Moment, Unreadable


@dataclass
class Clock:
    """Stands still, a little ahead of or behind the real one, until it is moved."""

    moment: Moment = field(default_factory=lambda: Moment(wall=float(int(time.time())), steady=0.0))

    def __call__(self) -> Moment:
        return self.moment

    def move(self, seconds: float) -> None:
        self.moment = Moment(wall=self.moment.wall + seconds, steady=self.moment.steady + seconds)


@dataclass
class Gate:
    """Reads files, but only while it is open; counts."""

    opened: threading.Event = field(default_factory=threading.Event)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    count: int = 0

    def read(self, path: str) -> bytes | Unreadable:
        self.count += 1
        self.begun.release()
        assert self.opened.wait(10)
        return read_token_file(path)

    def wait_for_read(self) -> None:
        assert self.begun.acquire(timeout=5)
