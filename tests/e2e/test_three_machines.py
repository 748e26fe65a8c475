"""Control plane, policy server and Envoy, each at an address of its own, started as the page on operations says."""

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from click.testing import CliRunner
from tests.support.eventually import START_LIMIT, eventually, listening
from tests.support.pages import ROOT, blocks, read
from tests.support.ports import free_port

from authplane.cli.main import build_app
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import Envoy, EnvoySettings, run_envoy
from authplane.runtime.servers.listen import TcpAddress

PATIENCE: Final = START_LIMIT
CONTROL, POLICY, EDGE, NOBODY = "127.0.0.11", "127.0.0.12", "127.0.0.13", "127.0.0.14"
MACHINES: Final = {"control.internal:": f"{CONTROL}:", "policy.internal:": f"{POLICY}:", "edge.internal:": f"{EDGE}:"}
PAGE: Final = ROOT / "docs" / "how-to" / "run-on-three-machines.md"
EXAMPLE: Final = ROOT / "examples" / "three-machines"


class Commands(NamedTuple):
    """The commands of the page, in its order."""

    prepare: str
    control: str
    policy: str
    tools: str
    edge: str
    call: str


def commands() -> Commands:
    own = read(PAGE).split("## Three machines\n")[1].split("\n## ")[0]
    return Commands(*(block.text for block in blocks(PAGE) if block.text in own and block.language == "sh"))


def words(block: str) -> list[str]:
    """Return the first command of a block, up to what is for the shell."""
    found = shlex.split(block.replace("\\\n", "").splitlines()[0])
    return found[: found.index(">")] if ">" in found else found


@dataclass
class Site:
    """Three programs and what they wrote."""

    root: Path
    port: int
    origin: int
    lines: dict[str, list[str]] = field(default_factory=dict)

    @property
    def gateway(self) -> Path:
        return self.root / "gateway"

    def local(self, text: str) -> str:
        """Put the addresses and the folder of the test in the place of the page's."""
        for name, address in MACHINES.items():
            text = text.replace(name, address)
        return text.replace("/etc/authplane", str(self.root))

    def prepare(self, block: str) -> None:
        """Do what the page says first: certificates, the folder, its Secrets, and the certificate of a client."""
        for line in self.local(block).replace("\\\n", "").splitlines():
            match shlex.split(line):
                case ["authplane", *arguments]:
                    made = CliRunner().invoke(build_app(), arguments)
                    assert made.exit_code == 0, made.output
                case ["cp", "-r", "examples/three-machines", target]:
                    shutil.copytree(EXAMPLE, target)
                case _:
                    pytest.fail(f"the page has a command that this test does not know: {line}")
        tools = (self.gateway / "tools.yaml").read_text(encoding="utf-8")
        self.write("tools.yaml", tools.replace("9082", str(self.origin)).replace("8443", str(self.port)))

    def configure(self, document: str) -> None:
        self.write("settings.yaml", self.local(document).replace("0.0.0.0", EDGE))

    def write(self, name: str, text: str) -> None:
        draft = self.root / f"{name}.new"
        draft.write_text(text, encoding="utf-8")
        draft.replace(self.gateway / name)

    @asynccontextmanager
    async def program(self, name: str, arguments: list[str]) -> AsyncGenerator[None]:
        said = self.lines.setdefault(name, [])

        async def sink(line: Line) -> None:
            said.append(line.text)

        argv = [sys.executable, "-m", "authplane", *map(self.local, arguments)]
        environment = dict(os.environ) | {"XDG_RUNTIME_DIR": str(self.root)}
        async with run_process(argv, sink=sink, grace=5, environment=environment):
            yield

    async def says(self, name: str, words: str) -> None:
        async def holds() -> bool:
            return any(words in line for line in self.lines[name])

        await eventually(holds, limit=PATIENCE)

    async def ask(self, *arguments: str) -> tuple[int, Any]:
        """Run a command that prints JSON."""
        code, printed = await self.run(*arguments)
        return code, json.loads(printed)

    async def run(self, *arguments: str) -> tuple[int, str]:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "authplane", *arguments,
            stdout=asyncio.subprocess.PIPE, env=dict(os.environ) | {"XDG_RUNTIME_DIR": str(self.root)},
        )  # fmt: skip
        printed, _ = await child.communicate()
        return child.returncode or 0, printed.decode()

    async def table(self, line: str) -> str:
        """Return what the table of `status` has under READY for the configuration, which must be followed by a line."""
        _, shown = await self.run("status", str(self.gateway))
        rows = shown.splitlines()
        row = next(index for index, each in enumerate(rows) if each.startswith("AuthplaneConfiguration/"))
        assert rows[row + 1].strip().startswith(line), shown
        return rows[row].split()[2]

    async def becomes(self, *wanted: str) -> None:
        """Wait until the status says so: the control plane tries the policy server every 10 seconds."""

        async def holds() -> bool:
            return await self.condition() == wanted

        await eventually(holds)

    async def condition(self) -> tuple[str, str]:
        """Return what the status of the configuration says of the policy server."""
        _, records = await self.ask("status", str(self.gateway), "-o", "json")
        (found,) = (
            each
            for record in records
            if record["kind"] == "AuthplaneConfiguration"
            for each in record["status"]["conditions"]
            if each["type"] == "PolicyServerReady"
        )
        return found["status"], found["reason"]

    async def call(self, tool: str) -> int:
        """Call a tool with the page's command, and return the status."""
        text = self.local(commands().call).replace("8443", str(self.port)).replace('"add"', f'"{tool}"')
        child = await asyncio.create_subprocess_exec(
            "bash", "-c", f"{text.strip()} -s -o /dev/null -w '%{{http_code}}'", stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await child.communicate()
        return int(printed)

    async def answers(self, tool: str, want: int) -> None:
        async def holds() -> bool:
            return await self.call(tool) == want

        await eventually(holds, limit=PATIENCE)


@asynccontextmanager
async def running(site: Site, page: Commands, stack: AsyncExitStack) -> AsyncGenerator[Envoy]:
    logged = ["--metrics-address", "", "--log-format", "json"]
    policy = [*words(page.policy)[1:], *logged, "--decision-log", ""]
    await stack.enter_async_context(site.program("policy", policy))
    await stack.enter_async_context(site.program("control", [*words(page.control)[1:], *logged]))
    await stack.enter_async_context(
        site.program("tools", [*words(page.tools)[1:], "--address", f"127.0.0.1:{site.origin}"])
    )
    await site.says("policy", "authorization service listening")
    await site.says("control", "control plane listening")
    code, start = await site.ask(*map(site.local, words(page.edge)[1:]))
    assert code == 0

    async def sink(_: Line) -> None: ...

    async with run_envoy(json.dumps(start), sink=sink, settings=EnvoySettings(concurrency=1)) as envoy:
        await envoy.ready(limit=START_LIMIT)
        await listening(TcpAddress(host=EDGE, port=site.port))
        await listening(TcpAddress(host="127.0.0.1", port=site.origin))
        yield envoy


async def shown(envoy: Envoy) -> set[str]:
    """Return the serial numbers of the certificates that Envoy has."""
    reply = await envoy.admin("/certs")
    return set(re.findall(r'"serial_number":\s*"(\w+)"', reply.body))


@pytest.mark.real
async def test_the_three_machines_of_the_page_trust_each_other_and_say_so_when_they_do_not(tmp_path: Path) -> None:
    page, site = commands(), Site(tmp_path, free_port(), free_port())
    site.prepare(page.prepare)
    document = (EXAMPLE / "settings.yaml").read_text(encoding="utf-8")
    async with AsyncExitStack() as stack:
        without = re.sub(r"    client\w+: .*\n", "", document)
        assert without != document
        site.configure(without)
        envoy = await stack.enter_async_context(running(site, page, stack))

        # Envoy shows no certificate, and everybody says so.
        assert await site.call("add") == 503
        await site.says("control", "cannot connect to the policy server")
        await site.says("policy", "TLS handshake failed")
        await site.says("policy", "the client presented no certificate")
        await site.becomes("False", "HandshakeFailed")
        code, rows = await site.ask("doctor", str(site.gateway), "-o", "json")
        (row,) = (row for row in rows if row["probe"] == "policy-server")
        assert (code, row["outcome"]) == (1, "finding")
        assert "clientCertFile" in row["remedy"], row
        assert await site.table("PolicyServerReady: False, HandshakeFailed: ") == "False"

        # With the page's configuration it does.
        site.configure(document)
        await site.answers("add", 200)
        assert await site.call("delete_note") == 403
        await site.says("control", "policy server accepts connections")
        await site.becomes("True", "AcceptsConnections")

        # A renewed certificate is used without a restart.
        before = await shown(envoy)
        site.prepare(page.prepare.splitlines()[0])

        async def renewed() -> bool:
            return bool(await shown(envoy) - before)

        await eventually(renewed, limit=PATIENCE)
        assert await site.call("add") == 200

        # Of several servers, those that answer are used.
        both = f'addresses: ["policy.internal:9443", "{NOBODY}:9443"]'
        site.configure(document.replace("address: policy.internal:9443", both))
        await site.says("control", NOBODY)
        await site.answers("add", 200)
        assert {await site.call("add") for _ in range(20)} == {200}
        await site.becomes("False", "Unreachable")


def test_the_page_shows_the_settings_of_the_example() -> None:
    (document,) = (block.text for block in blocks(PAGE) if block.language == "yaml" and "policyServer" in block.text)
    assert (EXAMPLE / "settings.yaml").read_text(encoding="utf-8").partition("\n")[2] == document
    assert [each.split()[:2] for each in commands()] == [
        ["authplane", "dev"],
        ["authplane", "control"],
        ["authplane", "authserver"],
        ["authplane", "dev"],
        ["authplane", "bootstrap"],
        ["curl", "--cacert"],
    ]
