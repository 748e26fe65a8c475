"""HTTP checks asked by a real nginx (``auth_request``), on both HTTP fronts."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import httpx2
import pytest
from tests.support.authservers.front_backends import in_workers, make, plan_for
from tests.support.envoy.static_gateway import documented
from tests.support.eventually import LIMIT, listening
from tests.support.ports import free_port
from tools.debian_program import AbsentError, find_program

from authplane.authserver.engine.http_check import OriginalHeaders
from authplane.authserver.fronts.runtime.http_front import HttpChecks, serve_http_checks
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.devkit.local.echo_origin import serve_echo
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.servers.listen import Address, TcpAddress

pytestmark = pytest.mark.real

HERE: Final = TcpAddress(host="127.0.0.1", port=0)
Front: TypeAlias = Callable[[str], AbstractAsyncContextManager[Address]]


@pytest.fixture(scope="module")
def nginx() -> Path:
    try:
        return find_program("nginx", "nginx")
    except AbsentError as error:
        pytest.skip(str(error))


@asynccontextmanager
async def small(backend: str) -> AsyncGenerator[Address]:
    async with make(plan_for(backend, FrontPlan(address=HERE, form=OriginalHeaders()))) as serving:
        checks = HttpChecks(serving.backend, OriginalHeaders(), observer=serving.observer, perform=serving.perform)
        async with serve_http_checks(checks, HERE) as address:
            yield address


@asynccontextmanager
async def pyvoy(backend: str) -> AsyncGenerator[Address]:
    async with in_workers(backend, FrontPlan(address=HERE, form=OriginalHeaders())) as address:
        yield address


both: Final = pytest.mark.parametrize("front", [small, pyvoy])

CONFIG: Final = """
daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
events {{}}
http {{
  access_log off; {more}
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    {locations}
  }}
}}
"""
DOCUMENTED: Final = documented("nginx")


@asynccontextmanager
async def _gateway(nginx: Path, folder: Path, authz: Address, *, more: str = "") -> AsyncGenerator[TcpAddress]:
    address = TcpAddress(host="127.0.0.1", port=free_port())

    async def ignore(_: Line) -> None: ...

    async with serve_echo(HERE) as origin:
        config = folder / "nginx.conf"
        locations = DOCUMENTED.replace("127.0.0.1:9080", str(origin)).replace("127.0.0.1:9092", str(authz))
        text = CONFIG.format(folder=folder, port=address.port, locations=locations, more=more)
        config.write_text(text, encoding="utf-8")
        async with run_process([str(nginx), "-p", str(folder), "-c", str(config)], sink=ignore):
            await listening(address)
            yield address


async def _raw(address: TcpAddress, request: bytes) -> int:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(request)
    try:
        async with asyncio.timeout(LIMIT):
            return int((await reader.readline()).split()[1])
    finally:
        writer.close()


@both
async def test_nginx_lets_through_what_is_allowed_and_nothing_else(front: Front, nginx: Path, tmp_path: Path) -> None:
    # nginx passes on 401 and 403; every other refusal is an error of its own.
    want = {
        "allow": 200,
        "unknown": 401,
        "forbidden": 403,
        "sign-in": 500,
        "too-often": 500,
        "unavailable": 500,
        "no-such-decision": 403,
        "broken": 403,
        "injection": 403,
        "x%ff": 403,
    }
    async with (
        front("scripted") as authz,
        _gateway(nginx, tmp_path, authz) as address,
        httpx2.AsyncClient(base_url=f"http://{address}") as client,
    ):
        answers = {path: await client.post(f"/{path}?q=1", content=b"body") for path in want}
        spoofed = {"auth-username": "root", "auth_username": "root", "authorization": "Basic eDp5"}
        allowed = await client.get("/allow", headers=spoofed)
        assert (await client.get("/authorize")).status_code == 404
    assert {path: answer.status_code for path, answer in answers.items()} == want
    assert answers["unknown"].headers["www-authenticate"] == 'Basic realm="shop"'
    assert answers["allow"].json()["body"] == "body"
    seen = [(name, value) for name, value in allowed.json()["headers"] if name.startswith("auth")]
    assert seen == [("auth-username", "ann")]


async def test_nothing_passes_nginx_while_the_server_is_gone(nginx: Path, tmp_path: Path) -> None:
    gone = TcpAddress(host="127.0.0.1", port=free_port())
    async with (
        _gateway(nginx, tmp_path, gone) as address,
        httpx2.AsyncClient(base_url=f"http://{address}") as client,
    ):
        assert (await client.get("/allow")).status_code == 500


FORGED: Final = {
    "the same header": b"GET /x HTTP/1.1\r\nHost: a\r\nX-Original-URL: http://a/allow\r\n\r\n",
    "with underscores": b"GET /x HTTP/1.1\r\nHost: a\r\nX_Original_URL: http://a/allow\r\n\r\n",
    "as Traefik names it": b"GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-Uri: /allow\r\nX-Forwarded-Host: allow\r\n\r\n",
    "a path in the host": b"GET /x HTTP/1.1\r\nHost: a/allow?\r\n\r\n",
    "a query in the host": b"GET /x HTTP/1.1\r\nHost: a?/allow\r\n\r\n",
    "a user in the host": b"GET /x HTTP/1.1\r\nHost: a@allow\r\n\r\n",
    "two hosts": b"GET /x HTTP/1.1\r\nHost: a\r\nHost: b/allow\r\n\r\n",
    "the host in the target": b"GET http://a/allow?/../x HTTP/1.0\r\n\r\n",
    "a query": b"GET /x?/allow HTTP/1.1\r\nHost: a\r\n\r\n",
    "a fragment": b"GET /x#/allow HTTP/1.1\r\nHost: a\r\n\r\n",
    "another method": b"allow /x HTTP/1.1\r\nHost: a\r\n\r\n",
}


@both
@pytest.mark.parametrize("more", ["", "underscores_in_headers on;"])
async def test_a_client_cannot_forge_what_nginx_asks_about(
    front: Front, nginx: Path, tmp_path: Path, more: str
) -> None:
    async with front("path") as authz, _gateway(nginx, tmp_path, authz, more=more) as address:
        assert await _raw(address, b"GET /allow HTTP/1.1\r\nHost: a\r\n\r\n") == 200
        refused = {name: await _raw(address, request) for name, request in FORGED.items()}
    assert {name: status for name, status in refused.items() if status < 400} == {}
