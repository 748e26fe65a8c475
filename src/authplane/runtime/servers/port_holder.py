"""Finds the process that listens on a port, as far as this user may see it on Linux."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.core.values import dataclass

_LISTEN: Final = "0A"
"""The state of a listening socket in ``/proc/net/tcp``."""
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class PortHolder:
    """A process that listens."""

    pid: int
    command: str
    """The program's name and its arguments, shortened for a message."""

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"


def find_port_holder(port: int, proc: Path = Path("/proc")) -> PortHolder | None:
    """Return a process that listens on a TCP port of this machine.

    None, if there is none, or if ``proc`` does not show it: Linux shows the sockets of other users to root only.
    """
    sockets = set(_listening(port, proc))
    if not sockets:
        return None
    for process in _processes(proc):
        if sockets & set(_open_files(process)):
            return PortHolder(int(process.name), _command(process))
    return None


def _listening(port: int, proc: Path) -> Iterator[str]:
    """Yield the listening sockets of a port, as links to open files name them."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except (OSError, ValueError):
            continue
        for line in lines:
            # sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTEN and fields[1].endswith(f":{port:04X}"):
                yield f"socket:[{fields[9]}]"


def _processes(proc: Path) -> Iterator[Path]:
    try:
        yield from (entry for entry in proc.iterdir() if entry.name.isdecimal())
    except OSError:
        return


def _open_files(process: Path) -> Iterator[str]:
    try:
        for entry in (process / "fd").iterdir():
            yield str(entry.readlink())
    except OSError:
        # It has ended, or belongs to another user.
        return


def _command(process: Path) -> str:
    try:
        arguments = (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        arguments = []
    # The folder of a program may be long, and hide its name. An interpreter has the program as an argument.
    words = [Path(each).name if each.startswith("/") else each for each in arguments]
    return shorten(printable(shlex.join(filter(None, words))), _LONGEST) or "unknown command"
