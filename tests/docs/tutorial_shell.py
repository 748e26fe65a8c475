"""Follows a tutorial from its top, as a reader would: files are written, commands typed, programs left running.

- A block of YAML or Python whose first line is a comment with a path is a file. So is a block of JSON after a line that
  ends with the path as code and a colon.
- A block ``console`` has commands with what they print; ``…`` stands for what differs.
- A block ``sh`` has a program that goes on running, in a terminal of its own.

All of it happens in one shell in a network of its own, so that the ports of tutorials are free.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from tests.support.eventually import START_LIMIT
from tests.support.pages import shows

_BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"^# (?P<path>[\w./-]+\.\w+)$", re.MULTILINE)
_NAMED = re.compile(r"`(?P<path>[\w./-]+\.json)`:$")
_END: Final = "@@end"
_LO_UP: Final = """
import fcntl, os, socket, struct, sys
request = struct.pack("16sh14x", b"lo", 1)
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8914, request)
os.execvp("bash", ["bash", "--norc", "--noprofile"])
"""
"""Switches the loopback interface of a new network on, then becomes a shell."""


class File(NamedTuple):
    """A file that the tutorial has its reader write."""

    path: str
    text: str


class Typed(NamedTuple):
    """A command, and what it prints."""

    command: str
    output: str


class Started(NamedTuple):
    """A program that goes on running."""

    command: str


def moves(page: str) -> Iterator[File | Typed | Started]:
    """Return what a reader does, in order."""
    for block in _BLOCK.finditer(page):
        text = block["text"]
        match block["language"]:
            case "yaml" | "python" if named := _PATH.match(text):
                yield File(named["path"], text)
            case "json" if named := _NAMED.search(block["before"]):
                yield File(named["path"], text)
            case "console":
                for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                    command, _, output = piece.replace("\\\n", " ").partition("\n")
                    yield Typed(command, output)
            case "sh":
                yield Started(text.replace("\\\n", " ").strip())
            case _:
                pass


class Shell:
    """A shell, and what it says."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._in: TextIO = process.stdin  # type: ignore[assignment]
        self._out: TextIO = process.stdout  # type: ignore[assignment]
        self._folder = folder
        self._programs = 0

    def run(self, command: str) -> str:
        """Run a command to its end and return all that it prints."""
        self._in.write(f"{command}\nprintf '%s\\n' '{_END}'\n")
        self._in.flush()
        said: list[str] = []
        for line in self._out:
            if line.endswith(f"{_END}\n"):
                return "".join([*said, line.removesuffix(f"{_END}\n")])
            said.append(line)
        raise AssertionError(f"the shell has ended: {''.join(said)}")

    def start(self, command: str) -> None:
        """Start a program that goes on; what it prints is kept in a file."""
        self._programs += 1
        self.run(f"{command} > {self._folder}/.program-{self._programs}.log 2>&1 &")

    def logs(self) -> str:
        """Return what the programs have printed, for the message of a failure."""
        return "\n".join(path.read_text(encoding="utf-8") for path in sorted(self._folder.glob(".program-*.log")))


@contextmanager
def shell(folder: Path) -> Iterator[Shell]:
    """Open a shell in a folder; at the end its programs are stopped."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    environment |= {"XDG_RUNTIME_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*_network(), sys.executable, "-c", _LO_UP] if _network() else ["bash", "--norc", "--noprofile"],
        cwd=folder, env=environment, text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    opened = Shell(process, folder)
    try:
        yield opened
    finally:
        opened.run("kill $(jobs -p) 2>/dev/null; wait")
        process.communicate("exit\n", timeout=START_LIMIT)


def _network() -> list[str]:
    """Return what gives a program a network of its own; nothing where the kernel does not let us."""
    own = ["unshare", "--user", "--map-root-user", "--net"]
    can = shutil.which("unshare") and subprocess.run([*own, "true"], check=False, capture_output=True).returncode == 0
    return own if can else []


def follow(page: str, folder: Path) -> list[str]:
    """Do what a tutorial says and return what came out otherwise than it shows.

    The first command with an output after a file or a program is repeated until programs have noticed.
    """
    wrong = []
    with shell(folder) as terminal:
        patient = False
        for move in moves(page):
            match move:
                case File(path, text):
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_text(text, encoding="utf-8")
                    patient = True
                case Started(command):
                    terminal.start(command)
                    patient = True
                case Typed(command, output):
                    said = terminal.run(command)
                    until = time.monotonic() + START_LIMIT
                    while patient and not shows(output, said) and time.monotonic() < until:
                        time.sleep(0.2)
                        said = terminal.run(command)
                    patient = patient and not output
                    if not shows(output, said):
                        wrong.append(f"$ {command}\n{said}")
        return [*wrong, terminal.logs()] if wrong else []
