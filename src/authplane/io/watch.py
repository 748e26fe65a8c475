"""Tells when a folder has new content."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog
import watchfiles
from watchfiles._rust_notify import WatchfilesRustInternalError

from authplane.io.folder import Folder, FolderError
from authplane.xds.holdoff import Holdoff

_log: Final = structlog.stdlib.get_logger()

QUIET: Final = 0.1
"""A burst of changes is over after so many seconds without one."""
LONGEST: Final = 0.5
"""A burst is cut after so many seconds."""
TICK: Final = 0.04
"""How often we look whether something is due, in seconds."""
LOOK: Final = 0.1
"""How often files are looked at where the system does not tell of changes, in seconds, if that is quickly done."""
SHARE: Final = 50
"""A look that takes long is followed by a pause so many times as long, up to `PAUSE`."""
PAUSE: Final = 10.0
"""The longest pause between two looks, in seconds."""


class Notify(Protocol):
    """Lets the system watch a path: yields whether something may have changed, at least once in a tick."""

    def __call__(self, path: Path, *, recursive: bool) -> AsyncGenerator[bool]:
        """Start watching with the first tick."""


async def rebuilds(
    folder: Folder, *, poll: bool = False, quiet: float = QUIET, longest: float = LONGEST, notify: Notify | None = None
) -> AsyncGenerator[None]:
    """Yield once for each burst of changes after which the folder's content differs.

    The library of the folder is up to date then. A folder that is removed keeps everything as it was.
    """
    clock = asyncio.get_running_loop().time
    holdoff = Holdoff(quiet, longest)
    scanner = _Scanner(folder)
    async with aclosing(_ticks(folder, poll=poll, notify=notify or _notify)) as ticks:
        async for changed in ticks:
            now = clock()
            if changed:
                holdoff.changed(now)
            due = holdoff.due()
            if due is not None and now >= due:
                holdoff.rebuilt()
                if scanner.scan():
                    yield


class _Scanner:
    """Scans a folder that may be away for a while."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._away = False

    def scan(self) -> bool:
        """Tell whether there is new content; says once when the folder goes and when it is back."""
        try:
            different = self._folder.scan()
        except FolderError as error:
            if not self._away:
                _log.warning("the folder is gone; everything stays in force as it was", why=str(error))
            self._away = True
            return False
        if self._away:
            _log.info("the folder is back", folder=str(self._folder.root))
        self._away = False
        return different


async def _ticks(folder: Folder, *, poll: bool, notify: Notify) -> AsyncGenerator[bool]:
    """Yield many times a second, with True when something may have changed, whatever becomes of the folder."""
    if not poll:
        try:
            async with aclosing(_reports(folder.root, notify)) as reports:
                async for changed in reports:
                    yield changed
        except (OSError, WatchfilesRustInternalError) as error:
            _log.warning("changes are looked for from time to time: the system cannot report them", why=str(error))
    async with aclosing(_looks(folder)) as looks:
        async for changed in looks:
            yield changed


async def _looks(folder: Folder) -> AsyncGenerator[bool]:
    """Look at the files from time to time.

    The polling of watchfiles does not do: it compares whole seconds, and a second write in one of them never shows.
    """
    clock = asyncio.get_running_loop().time
    following = clock()
    while True:
        changed, start = False, clock()
        if start >= following:
            changed = folder.peek()
            following = clock() + min(PAUSE, max(LOOK, SHARE * (clock() - start)))
        yield changed
        await asyncio.sleep(TICK)


async def _reports(root: Path, notify: Notify) -> AsyncGenerator[bool]:
    """Be told of changes; while there is no folder, wait for one."""
    missing = False
    while True:
        watched = _watched(root)
        if watched is None:
            yield not missing
            missing = True
            await asyncio.sleep(TICK)
            continue
        missing = False
        try:
            async with aclosing(notify(watched.path, recursive=watched.recursive)) as seen:
                async for changed in _until_replaced(seen, root, watched):
                    yield changed
        except (OSError, WatchfilesRustInternalError):
            if _watched(root) == watched:
                raise
        yield True


class _Watched(NamedTuple):
    """What stands for a root: a file is watched through its folder, since editors replace files."""

    path: Path
    recursive: bool
    device: int
    inode: int


def _watched(root: Path) -> _Watched | None:
    try:
        real = root.resolve(strict=True)
        path = real if real.is_dir() else real.parent
        found = path.stat()
    except (OSError, RuntimeError):
        return None
    return _Watched(path, real.is_dir(), found.st_dev, found.st_ino)


async def _until_replaced(seen: AsyncIterator[bool], root: Path, watched: _Watched) -> AsyncGenerator[bool]:
    """Pass on ticks while the root is what it was; the first says "changed", for what was missed before it."""
    first = True
    async for changed in seen:
        yield changed or first
        first = False
        if _watched(root) != watched:
            return


async def _notify(path: Path, *, recursive: bool) -> AsyncGenerator[bool]:
    """Watch with inotify."""
    changes = watchfiles.awatch(
        os.fspath(path),
        watch_filter=None,
        debounce=50,
        step=10,
        rust_timeout=int(TICK * 1000),
        yield_on_timeout=True,
        force_polling=False,
        recursive=recursive,
        ignore_permission_denied=True,
    )
    async with aclosing(changes):
        async for found in changes:
            yield bool(found)
