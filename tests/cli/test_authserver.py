"""`authplane authserver`: both engines, both backends, as processes."""

import sys
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import bcrypt
import grpc
import grpc.aio
import httpx2
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.policy.checks import check
from tests.support.eventually import eventually
from tests.support.gateway import free_port
from typer.testing import CliRunner

from authplane.cli.main import app
from authplane.io.process import Line, Stream, run_process

ENGINES = pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])


class Server:
    """A running server and what it wrote."""

    def __init__(self) -> None:
        self.grpc, self.http, self.admin = free_port(), free_port(), free_port()
        self.lines: list[Line] = []

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncGenerator["Server"]:
        async def sink(line: Line) -> None:
            self.lines.append(line)

        argv = [sys.executable, "-m", "authplane", "authserver", *arguments]
        argv += ["--address", f"127.0.0.1:{self.grpc}", "--log-format", "json"]
        async with run_process(argv, sink=sink, grace=5):
            await self.says("authorization server listens")
            yield self

    async def says(self, words: str) -> None:
        async def holds() -> bool:
            return any(words in line.text for line in self.lines)

        await eventually(holds, limit=15)

    async def ask(self, path: str, **headers: str) -> pb.CheckResponse:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc}") as channel:
            call: Any = channel.unary_unary("/envoy.service.auth.v3.Authorization/Check")
            body = check(path, headers={"user-agent": "test"} | headers).SerializeToString()
            return pb.CheckResponse.FromString(await call(body, timeout=5))

    @property
    def decisions(self) -> list[str]:
        return [line.text for line in self.lines if line.stream is Stream.STDOUT]


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def entry(user: str, password: str) -> str:
    return f"{user}:{bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()}\n"


@ENGINES
async def test_the_test_backend_decides_logs_and_counts(engine: str) -> None:
    server = Server()
    admin = ["--metrics-address", f"127.0.0.1:{server.admin}"]
    async with server.running("testserver", "--mode", "path", "--engine", engine, *admin):
        assert [(await server.ask(path)).status.code for path in ("/allow?token=hunter2", "/x")] == [0, 16]
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.admin}") as client:
            assert (await client.get("/readyz")).status_code == 200
            metrics = (await client.get("/metrics")).text
        assert 'authplane_checks_total{backend="testserver",decision="deny"} 1.0' in metrics
        await server.says('"path":"/x"')
    assert len(server.decisions) == 2
    assert "hunter2" not in str(server.lines)


@ENGINES
async def test_users_of_a_file_are_let_in_and_changes_are_followed(engine: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text(entry("ann", "secret-1"), encoding="utf-8")
    server = Server()
    arguments = ["htpasswd", "--file", str(users), "--auth-realm", "shop", "--engine", engine, "--metrics-address", ""]
    async with server.running(*arguments):
        allowed = await server.ask("/", authorization=basic("ann", "secret-1"))
        assert allowed.status.code == 0
        sent = {option.header.key: option.header.value for option in allowed.ok_response.headers}
        assert (sent["Auth-Username"], sent["Auth-Realm"]) == ("ann", "shop")
        assert "authorization" in allowed.ok_response.headers_to_remove
        denied = await server.ask("/", authorization=basic("ann", "wrong"))
        challenge = {option.header.key: option.header.value for option in denied.denied_response.headers}
        assert (denied.status.code, challenge["WWW-Authenticate"]) == (16, 'Basic realm="shop", charset="UTF-8"')
        assert (await server.ask("/")).status.code == 16
        users.write_text(entry("ann", "secret-2"), encoding="utf-8")

        async def changed() -> bool:
            return (await server.ask("/", authorization=basic("ann", "secret-2"))).status.code == 0

        await eventually(changed)
        assert (await server.ask("/", authorization=basic("ann", "secret-1"))).status.code == 16
    assert "secret-" not in str(server.lines)
    assert '"identity":"ann"' in str(server.decisions)


@ENGINES
async def test_http_checks_are_answered_too(engine: str) -> None:
    server = Server()
    http = ["--http-address", f"127.0.0.1:{server.http}", "--metrics-address", ""]
    async with (
        server.running("testserver", "--mode", "path", "--engine", engine, *http),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.http}") as client,
    ):
        assert (await client.get("/allow")).status_code == 200
        assert (await client.get("/x")).status_code == 401


async def test_several_workers_share_the_port() -> None:
    server = Server()
    async with server.running("testserver", "--engine", "pyvoy", "--workers", "2"):
        assert [(await server.ask("/")).status.code for _ in range(8)] == [0] * 8


BAD = {
    "no users": (["htpasswd"], "there are no users"),
    "no selector": (["htpasswd", "--file", "x", "--selector", "a in b"], "is not a label selector"),
    "no realm": (["htpasswd", "--file", "x", "--auth-realm", "a\x01"], "cannot be the name of a realm"),
    "workers of grpcio": (["testserver", "--engine", "grpcio", "--workers", "2"], "use --engine pyvoy"),
    "metrics of workers": (
        ["testserver", "--engine", "pyvoy", "--workers", "2", "--metrics-address", "127.0.0.1:0"],
        "not joined yet",
    ),
    "a log of workers": (
        ["testserver", "--engine", "pyvoy", "--workers", "2", "--decision-log", "x.log"],
        "cannot share a decision log",
    ),
    "an unknown form": (["testserver", "--http-form", "other"], "is not one of"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_served_is_one_sentence(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["authserver", *arguments, "--address", "127.0.0.1:0"])
    assert result.exit_code == 2
    assert result.stderr.startswith("authplane: ")
    assert words in result.stderr
    assert "Traceback" not in result.stderr
