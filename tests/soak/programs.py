"""Programs that a supervisor would keep alive: whoever ends is started again, unless it is to stay away."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.eventually import START_LIMIT, eventually

from authplane.runtime.child_processes import Child, Line, run_process

PATIENCE: Final = START_LIMIT
"""Seconds for a program to start, on a machine that has other things to do."""
_LISTENING: Final = "0A"
"""How the kernel writes TCP_LISTEN."""
_PAUSE: Final = 0.1
"""Seconds between the end of a program and its next start."""


@dataclass
class Program:
    """One program, its command line, and what it has written since its last start."""

    name: str
    argv: Sequence[str]
    ready: str = ""
    """Words that it writes when it serves; none if it writes nothing."""
    lines: list[str] = field(default_factory=list)
    child: Child | None = None
    starts: int = 0
    ended_by_itself: int = 0
    """How often it ended although nobody had killed it."""
    _killed: bool = False
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int:
        assert self.child is not None, f"{self.name} does not run"
        return self.child.pid

    async def keep(self) -> None:
        """Run it for as long as this task runs."""
        self._wanted.set()
        while True:
            await self._wanted.wait()
            self.lines.clear()
            async with run_process(self.argv, sink=self._take, grace=5) as child:
                self.child, self._killed = child, False
                self.starts += 1
                await child.ended()
            self.child = None
            if not self._killed:
                self.ended_by_itself += 1
            await asyncio.sleep(_PAUSE)

    def kill(self) -> None:
        """End it as a crash would; it is started again."""
        self._killed = True
        os.kill(self.pid, signal.SIGKILL)

    async def leave(self) -> None:
        """End it, and keep it away until `come_back`."""
        self._wanted.clear()
        self.kill()

        async def gone() -> bool:
            return self.child is None

        await eventually(gone, limit=PATIENCE)

    async def come_back(self) -> None:
        """Let it start again, and wait until it serves."""
        self._wanted.set()
        await self.serves(self.starts + 1)

    async def serves(self, start: int = 1) -> None:
        """Wait until it serves, after so many starts."""

        async def holds() -> bool:
            return self.starts >= start and self.child is not None and self._has_said()

        await eventually(holds, limit=PATIENCE)

    def _has_said(self) -> bool:
        return any(self.ready in line for line in self.lines) if self.ready else True

    async def _take(self, line: Line) -> None:
        self.lines.append(line.text)
        del self.lines[:-2000]


def children_of(process: int) -> list[int]:
    """Return the numbers of the processes that a process has started, the oldest first."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # From the third field on: the name, which may have spaces, is before them.
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            if int(fields[1]) == process:
                found.append((int(fields[19]), int(folder.name)))
    return [number for _, number in sorted(found)]


def listeners_on(port: int) -> int:
    """Return how many sockets listen on a port, which workers share: one that starts does not listen yet."""
    rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = (row.split() for row in rows)
    return sum(each[1].endswith(f":{port:04X}") and each[3] == _LISTENING for each in fields)
