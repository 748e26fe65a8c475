"""Child processes and tasks that end with their owner."""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from traceback import extract_tb
from typing import Final, TypeAlias

from authplane.core.values import dataclass

_LONGEST_LINE: Final = 1024 * 1024
_LAST_WORDS: Final = 1.0
"""How many seconds the output of a process that has ended may take."""

_LAUNCHER: Final = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Asks the kernel (PR_SET_PDEATHSIG is 1) to end this process with its parent, then becomes the program.

A program of its own and no ``preexec_fn``: Python code between fork and exec can deadlock where other threads run,
and gRPC has threads. A parent that died in between is found by its number.
"""


class Stream(StrEnum):
    """Where a line was written."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of output, without its end."""

    stream: Stream
    text: str


LineSink: TypeAlias = Callable[[Line], Awaitable[None]]
"""Receives each line. It must be quick, because the process may block meanwhile."""


async def forward(line: Line) -> None:
    """Write a line where our own output of that kind goes; one that cannot be written is lost."""
    ours = sys.stdout if line.stream is Stream.STDOUT else sys.stderr
    with contextlib.suppress(OSError, ValueError):
        ours.write(f"{line.text}\n")
        ours.flush()


class Child:
    """A running process."""

    def __init__(self, process: asyncio.subprocess.Process, readers: Sequence[asyncio.Task[None]]) -> None:
        self._process = process
        self._readers = readers

    @property
    def pid(self) -> int:
        """The process's number."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.returncode

    async def ended(self) -> int:
        """Wait for the end and for the last line, and return the exit status."""
        status = await self._process.wait()
        await asyncio.wait(self._readers, timeout=_LAST_WORDS)
        return status


@asynccontextmanager
async def run_process(
    argv: Sequence[str],
    *,
    sink: LineSink,
    output: int | None = None,
    grace: float = 2.0,
    environment: Mapping[str, str] | None = None,
) -> AsyncGenerator[Child]:
    """Run a program while the block runs; then terminate it, and kill it after ``grace`` seconds.

    With ``output``, the program writes its standard output to this descriptor and not to ``sink``.

    It ends even if this process is killed. It does not see Ctrl-C: ending it is up to the owner of the block.
    """
    loop = asyncio.get_running_loop()
    # What create_subprocess_exec does, but with the transport in hand: only closing that lets go of the output.
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=_LONGEST_LINE, loop=loop),
        sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE if output is None else output,
        stderr=asyncio.subprocess.PIPE,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )  # fmt: skip
    process = asyncio.subprocess.Process(transport, protocol, loop)
    async with owned_tasks() as tasks:
        readers = [
            tasks.create_task(_deliver(process.stdout, Stream.STDOUT, sink)),
            tasks.create_task(_deliver(process.stderr, Stream.STDERR, sink)),
        ]
        try:
            yield Child(process, readers)
        finally:
            await _end(process, grace)
            # Child processes of the program may keep its output open.
            for late in (await asyncio.wait(readers, timeout=_LAST_WORDS))[1]:
                late.cancel()
            transport.close()


@asynccontextmanager
async def owned_tasks() -> AsyncGenerator[asyncio.TaskGroup]:
    """Own tasks while the block runs; a single failure is raised as it is, so that callers can name what they catch."""
    try:
        async with asyncio.TaskGroup() as tasks:
            yield tasks
    except BaseExceptionGroup as failures:
        if len(failures.exceptions) > 1:
            raise
        raise failures.exceptions[0] from failures.exceptions[0].__cause__


def place_of(error: Exception) -> str:
    """Name an exception and where it was raised, for the log.

    The message and the variables are left out: they can contain data of a client, such as a password.
    """
    frames = extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{where}"


async def _deliver(reader: asyncio.StreamReader | None, stream: Stream, sink: LineSink) -> None:
    """Pass on lines until the stream ends; a line that is too long is replaced by a remark."""
    too_long = False
    while reader is not None:
        try:
            raw = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as ended:
            raw = ended.partial
            reader = None
        except asyncio.LimitOverrunError as overrun:
            await reader.readexactly(overrun.consumed)
            too_long = True
            continue
        if too_long:
            await sink(Line(stream, f"(a line longer than {_LONGEST_LINE} bytes)"))
        elif raw:
            await sink(Line(stream, raw.decode(errors="replace").rstrip("\r\n")))
        too_long = False


async def _end(process: asyncio.subprocess.Process, grace: float) -> None:
    """Ask, then insist; the readers see the end of the output by themselves."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            async with asyncio.timeout(grace):
                await process.wait()
    except TimeoutError:
        pass
    finally:
        # Also when the wait is cancelled: the block must not leave a process behind.
        if process.returncode is None:
            _signal(process, signal.SIGKILL)
            await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
