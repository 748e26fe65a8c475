"""The quickstart, as a person meets it: every line that it prints does what it says."""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest
from tests.support.eventually import eventually
from tests.support.ports import free_port

from authplane.runtime.child_processes import Line, Stream, run_process

AUTHPLANE = Path(sys.executable).parent / "authplane"
DENIED = 'Access denied. No rule grants tools/call "delete_note" to this caller.'
PORTS = (8080, 8443, 8090, 8091, 9080, 9443, 9082, 9445)


class Quickstart:
    """A running `authplane run` without a folder, on ports that nobody else has."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.ports = {port: free_port() for port in PORTS}
        # Which of the two gateways has the greater number must not matter.
        self.ports[8090], self.ports[8091] = sorted((self.ports[8090], self.ports[8091]), reverse=True)
        self.lines: list[Line] = []
        folder = state / "quickstart"
        folder.mkdir(parents=True)
        for source in files("authplane.devkit.local").joinpath("sample").iterdir():
            text = source.read_text(encoding="utf-8")
            for old, new in self.ports.items():
                text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
                if old != 9443:  # the port of a Service may be what it is
                    text = text.replace(f"ort: {old}", f"ort: {new}")
            text = text.replace("- name: grpc\n  port: 9443", f"- name: grpc\n  port: {self.ports[9443]}")
            (folder / source.name).write_text(text, encoding="utf-8")

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async def sink(line: Line) -> None:
            self.lines.append(line)

        places = {"authserver": 9443, "echo": 9080, "tools": 9082, "issuer": 9445}
        options = [
            word for name, port in places.items() for word in (f"--{name}-address", f"127.0.0.1:{self.ports[port]}")
        ]
        argv = [str(AUTHPLANE), "run", "--state-dir", str(self.state), *options]
        async with run_process(argv, sink=sink, grace=5):
            await self.says("Press Ctrl-C to stop")
            yield

    async def says(self, words: str) -> None:
        async def holds() -> bool:
            return any(words in line.text for line in self.lines)

        try:
            await eventually(holds, limit=120)
        except TimeoutError:
            raise AssertionError("\n".join(line.text for line in self.lines)) from None

    def tries(self) -> list[tuple[str, str]]:
        """Return the commands to try, each with its outcome."""
        found, command = [], ""
        for line in (line.text for line in self.lines):
            if line.startswith(("  curl", "  TOKEN")):
                command = line.strip()
            elif command and line.startswith("    → "):
                found.append((command, line.removeprefix("    → ")))
                command = ""
            elif command:
                command += f"\n{line}"
        return found

    async def requests(self, number: int) -> bool:
        """Wait until there are as many lines about requests; False if there are more."""

        def found() -> int:
            return sum(re.match(r"\d\d:\d\d:\d\d \d\d\d ", line.text) is not None for line in self.lines)

        async def enough() -> bool:
            return found() >= number

        await eventually(enough, limit=120)
        return found() == number

    def program(self) -> str:
        """Return the program, as somebody copies it from the terminal."""
        texts = [line.text for line in self.lines]
        begin = next(index for index, text in enumerate(texts) if text.startswith("TOKEN="))
        return "\n".join(texts[begin : texts.index("END") + 1])


async def shell(*argv: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate()
    return output.decode()


@pytest.mark.real
@pytest.mark.requirement("O05")
async def test_every_line_that_it_prints_does_what_it_says(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.fail("this needs curl")
    quickstart = Quickstart(tmp_path / "state")
    async with quickstart.running():
        tries = quickstart.tries()
        assert len(tries) == 8
        token = ""
        for line, answer in tries:
            if line.startswith("TOKEN"):
                token = line
                continue
            said = await shell("bash", "-c", f"{token}\n{line}")
            assert f"HTTP/2 {answer[:3]}" in said, (line, answer, said)
        await quickstart.says("tools/call delete_note: denied to https://127.0.0.1:")
        await quickstart.says("allowed by Envoy with default/tools/janitor/0:CEL")
        assert await quickstart.requests(7), [line.text for line in quickstart.lines]
        rows = json.loads(await shell(str(AUTHPLANE), "doctor", str(quickstart.state / "quickstart"), "-o", "json"))
        # The route without authorization is intended.
        assert [row["probe"] for row in rows if row["outcome"] != "ok"] == ["protection"], rows
        assert ("policy-server", "authplane run") in [(row["probe"], row["subject"]) for row in rows]
        said = await shell("bash", "-c", quickstart.program())
        assert said.splitlines() == ["add: 3.0", f"delete_note: {DENIED}"]
        logged = [line.text for line in quickstart.lines if line.stream is Stream.STDERR]
        assert [re.sub(r"^\d\d:\d\d:\d\d (.*), keys .*", r"\1", line) for line in logged] == [
            f"fetched issuer keys: issuer https://127.0.0.1:{quickstart.ports[9445]}"
        ]
