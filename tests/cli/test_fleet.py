"""Authorization services of several backends and of several processes, as users run them."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx2
import pytest
from click.testing import CliRunner
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.authservers.check_requests import check
from tests.support.authservers.server_process import Server, basic, entry
from tests.support.eventually import START_LIMIT, eventually

from authplane.cli.main import build_app

ENGINES = pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])

DOOR = """\
apiVersion: authplane.dev/v1alpha1
kind: AuthorizationService
metadata: {name: door}
spec:
  backends:
  - name: staff
    when:
    - context: {key: area, value: staff}
    htpasswd:
      files: [{path: users/staff.htpasswd}]
      realm: staff
  - name: demo
    when:
    - host: "*.example"
    - pathPrefix: /demo
    testserver: {mode: path}
"""


def named(metrics: dict[str, float], *prefixes: str) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if name.startswith(prefixes)}


@pytest.mark.real
@ENGINES
async def test_the_first_backend_that_fits_decides_and_is_named(engine: str, tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "staff.htpasswd").write_text(entry("ann", "secret"), encoding="utf-8")
    (tmp_path / "door.yaml").write_text(DOOR, encoding="utf-8")
    server = Server()
    async with server.running("serve", str(tmp_path / "door.yaml"), "--engine", engine, "--decision-log", "-"):
        staff = {"area": "staff"}
        for _ in range(2):
            allowed = await server.ask("/demo/x", context=staff, authorization=basic("ann", "secret"))
            assert (allowed.status.code, allowed.ok_response.headers[0].header.value) == (0, "htpasswd")
        assert (await server.ask("/demo/x", context=staff)).status.code == 16
        assert (await server.ask("/demo/allow")).status.code == 0
        assert (await server.ask("/demo/x")).status.code == 16
        assert (await server.ask("/other")).denied_response.status.code == 403
        assert (await server.ask("/demo/../other")).denied_response.status.code == 400
        assert named(await server.metrics(), "checks", "cache") == {
            "checks_total staff allow": 2,
            "checks_total staff deny": 1,
            "checks_total demo allow": 1,
            "checks_total demo deny": 1,
            "checks_total - deny": 2,
            "cache_lookups_total staff miss": 1,
            "cache_lookups_total staff hit": 1,
        }
        await server.says("/other")
    assert [(line["backend"], line["decision"]) for line in server.decisions] == [
        ("staff", "allow"), ("staff", "allow"), ("staff", "deny"), ("demo", "allow"), ("demo", "deny"), ("-", "deny"),
        ("-", "deny"),
    ]  # fmt: skip


BAD = {
    "every problem at once": (
        DOOR.replace("mode: path", "mode: some").replace("realm: staff", "relm: staff"),
        [
            "door.yaml:11:7: error: Unknown field 'relm'. Did you mean 'realm'?",
            "door.yaml:16:18: error: Expected one of 'all', 'path', got 'some'.",
        ],
    ),
    "a selector": (
        DOOR.replace("realm: staff", "selector: a in b"),
        ["door.yaml:11:7: error: 'a in b' is not a label selector. Use a selector such as 'team=shop,tier in (a, b)'."],
    ),
    "two of them": (
        DOOR + "---\n" + DOOR.replace("name: door", "name: gate"),
        [
            "door.yaml:1:1: error: door.yaml has more than one AuthorizationService. Remove all but one.",
            "door.yaml:18:1: error: door.yaml has more than one AuthorizationService. Remove all but one.",
        ],
    ),
    "none": (
        "# nothing\n",
        ["door.yaml: error: The file has no AuthorizationService of authplane.dev/v1alpha1. Add one."],
    ),
}


@pytest.mark.parametrize(("text", "want"), BAD.values(), ids=BAD.keys())
def test_an_invalid_document_is_reported_line_by_line(text: str, want: list[str], tmp_path: Path) -> None:
    file = tmp_path / "door.yaml"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["authserver", "serve", str(file), "--address", "127.0.0.1:0"])
    assert result.exit_code == 1
    *found, last = result.stderr.splitlines()
    assert [line.removeprefix(f"{tmp_path}/").rpartition(" (")[0] for line in found] == want
    assert last.startswith(f"authplane: Cannot serve {file}, because it has ")


def test_a_document_of_the_former_kind_is_served_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "door.yaml"
    file.write_text(DOOR.replace("kind: AuthorizationService", "kind: AuthorizationServer"), encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["authserver", "serve", str(file), "--address", "0.0.0.0:0"])
    warning, refusal = result.stderr.splitlines()
    assert (
        "door.yaml:2:1: warning: Kind AuthorizationServer is deprecated. Write kind: AuthorizationService." in warning
    )
    assert refusal.startswith("authplane: Refusing to listen on 0.0.0.0:0 without client certificates.")


def test_the_document_is_no_error_in_a_folder_of_a_control_plane(tmp_path: Path) -> None:
    (tmp_path / "door.yaml").write_text(DOOR, encoding="utf-8")
    result = CliRunner().invoke(build_app(), ["validate", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (0, "0 errors, 0 warnings\n")


@pytest.mark.real
async def test_the_metrics_of_all_workers_are_one_and_none_goes_back_when_a_worker_is_killed() -> None:
    server = Server()
    async with server.running("testserver", "--engine", "pyvoy", "--workers", "2", "--decision-log", "", http=True):
        for _ in range(10):
            assert (await server.ask("/")).status.code == 0
        async with httpx2.AsyncClient() as client:
            for _ in range(5):
                assert (await client.get(f"http://127.0.0.1:{server.http}/")).status_code == 200
        assert await server.metrics() == {
            "checks_total testserver allow": 15,
            "workers grpc": 2,
            "workers http": 1,
        }
        os.kill(server.workers()[0], signal.SIGKILL)

        async def replaced() -> bool:
            found = await server.metrics()
            assert found["checks_total testserver allow"] >= 15
            return found.get("worker_restarts_total grpc") == 1 and found.get("workers grpc") == 2

        await eventually(replaced)
        for _ in range(3):
            assert (await server.ask("/")).status.code == 0
        assert (await server.metrics())["checks_total testserver allow"] == 18
        assert (await server.page("/readyz")).text == "ready\n"


@pytest.mark.real
async def test_the_only_worker_is_replaced_when_it_is_killed_and_checks_go_on() -> None:
    server = Server()
    async with server.running("testserver", "--engine", "pyvoy", "--decision-log", ""):
        assert (await server.ask("/")).status.code == 0
        [worker] = server.workers()
        os.kill(worker, signal.SIGKILL)

        async def answers() -> bool:
            try:
                return (await server.ask("/")).status.code == 0
            except grpc.aio.AioRpcError:
                return False

        await eventually(answers)
        assert worker not in server.workers()
        assert [(await server.ask("/")).status.code for _ in range(5)] == [0] * 5


@pytest.mark.real
@ENGINES
async def test_readiness_says_what_is_missing(engine: str, tmp_path: Path) -> None:
    server, users = Server(), tmp_path / "users"
    async with server.running("htpasswd", "--file", str(users), "--engine", engine):
        missing = await server.page("/readyz")
        front = "grpc: worker 0: " if engine == "pyvoy" else ""
        assert (missing.status_code, missing.text) == (503, f"not ready\n{front}htpasswd: users are not loaded yet\n")
        assert (await server.page("/healthz")).text == "alive\n"
        users.write_text(entry("ann", "secret"), encoding="utf-8")

        async def ready() -> bool:
            return (await server.page("/readyz")).status_code == 200

        await eventually(ready)
        assert named(await server.metrics(), "reloads") == {"reloads_total ok htpasswd": 1}


def lines_of(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="ascii").splitlines():
        yield json.loads(line)["path"]


@pytest.mark.real
@pytest.mark.parametrize(("engine", "workers"), [("grpcio", "1"), ("pyvoy", "2")])
async def test_all_workers_write_to_one_log_and_go_on_where_it_was_moved_away(
    engine: str, workers: str, tmp_path: Path
) -> None:
    server, log, moved = Server(), tmp_path / "decisions.log", tmp_path / "moved"
    arguments = ["testserver", "--engine", engine, "--workers", workers, "--decision-log", str(log)]
    async with server.running(*arguments, http=True), httpx2.AsyncClient() as client:

        async def ask(name: str) -> None:
            async with asyncio.TaskGroup() as tasks:
                for number in range(20):
                    tasks.create_task(server.ask(f"/grpc/{name}/{number}"))
                    tasks.create_task(client.get(f"http://127.0.0.1:{server.http}/http/{name}/{number}"))

        def asked(name: str) -> list[str]:
            return sorted(f"/{front}/{name}/{number}" for front in ("grpc", "http") for number in range(20))

        async def written() -> bool:
            return sorted(lines_of(log)) == asked("before")

        await ask("before")
        await eventually(written)
        log.rename(moved)
        server.signal(signal.SIGHUP)
        await ask("after")
    assert (sorted(lines_of(moved)), sorted(lines_of(log))) == (asked("before"), asked("after"))
    assert server.decisions == []


@pytest.mark.real
@ENGINES
async def test_a_check_in_flight_is_answered_when_the_server_stops(engine: str, tmp_path: Path) -> None:
    server, users, log = Server(), tmp_path / "users", tmp_path / "decisions.log"
    users.write_text(entry("ann", "secret", cost=12), encoding="utf-8")
    arguments = ["htpasswd", "--file", str(users), "--engine", engine, "--decision-log", str(log)]
    async with server.running(*arguments, http=True), httpx2.AsyncClient() as client:
        credentials = basic("ann", "secret")

        async def over_http() -> int:
            headers = {"authorization": credentials}
            return (await client.get(f"http://127.0.0.1:{server.http}/http", headers=headers)).status_code

        async def in_flight() -> bool:
            return (await server.metrics()).get("checks_in_flight htpasswd") == 2

        async with asyncio.TaskGroup() as tasks:
            asked: asyncio.Task[pb.CheckResponse] = tasks.create_task(server.ask("/grpc", authorization=credentials))
            http = tasks.create_task(over_http())
            await eventually(in_flight)
            server.signal(signal.SIGTERM)
        assert (asked.result().status.code, http.result()) == (0, 200)
        async with asyncio.timeout(5):
            assert await server.child.ended() == 0
    assert sorted(lines_of(log)) == ["/grpc", "/http"]


@pytest.mark.real
@ENGINES
@pytest.mark.parametrize("to", ["a file", "standard output"])
async def test_every_decision_is_in_the_log_in_order_when_the_server_has_ended(
    engine: str, to: str, tmp_path: Path
) -> None:
    server, log = Server(), tmp_path / "decisions.log"
    paths = [f"/{number}" for number in range(200)]
    async with server.running("testserver", "--engine", engine, "--decision-log", str(log) if to == "a file" else "-"):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
            call: Any = channel.unary_unary("/envoy.service.auth.v3.Authorization/Check")
            for path in paths:
                await call(check(path).SerializeToString(), timeout=5)
        server.signal(signal.SIGTERM)
        async with asyncio.timeout(START_LIMIT):
            assert await server.child.ended() == 0
    assert (list(lines_of(log)) if to == "a file" else [line["path"] for line in server.decisions]) == paths


@pytest.mark.real
@ENGINES
async def test_an_unread_log_loses_lines_and_delays_neither_checks_nor_the_parent(engine: str) -> None:
    server = Server()
    unread, output = os.pipe()
    argv = [sys.executable, "-m", "authplane", "authserver", "testserver", "--engine", engine, "--log-format", "json"]
    argv += ["--address", f"127.0.0.1:{server.grpc}", "--metrics-address", f"127.0.0.1:{server.admin}"]
    process = await asyncio.create_subprocess_exec(*argv, stdout=output, stderr=asyncio.subprocess.PIPE)
    os.close(output)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(START_LIMIT):
            assert b"authorization service listening" in await process.stderr.readline()

        async def lost() -> bool:
            for _ in range(4):
                await _ask_often(server, 500)
            return "log_lines_lost_total" in await server.metrics()

        await eventually(lost)
        assert (await server.page("/healthz")).text == "alive\n"
        process.terminate()
        async with asyncio.timeout(10):
            assert await process.wait() == 0
    finally:
        os.close(unread)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _ask_often(server: Server, times: int) -> None:
    """Ask with a path as long as a line of the log has room for."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        call: Any = channel.unary_unary("/envoy.service.auth.v3.Authorization/Check")
        body = check("/" + "x" * 500).SerializeToString()

        async def ask() -> None:
            assert pb.CheckResponse.FromString(await call(body, timeout=5)).status.code == 0

        async with asyncio.TaskGroup() as tasks:
            for _ in range(times):
                tasks.create_task(ask())
