"""Watches a folder for new content."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import structlog

from authplane.core.holdoff import Holdoff
from authplane.sources.runtime.inotify import ANYTHING, NOTHING, Inotify, Seen
from authplane.sources.runtime.read_folder import Folder, FolderError

_log: Final = structlog.stdlib.get_logger()

QUIET: Final = 0.1
"""A burst of changes is over after so many seconds without one."""
LONGEST: Final = 0.5
"""A burst is cut after so many seconds."""
CHECK: Final = 1.0
"""How often we look whether the root is still the same, in seconds."""
LOOK: Final = 0.1
"""Seconds between two scans if the system does not report changes and a scan is quick."""
SHARE: Final = 50
"""A slow scan is followed by a pause so many times as long, up to `PAUSE`."""
PAUSE: Final = 10.0
"""The longest pause between two scans, in seconds."""


class Reports(Protocol):
    """Changes, as they come."""

    async def wait(self, seconds: float) -> Seen:
        """Wait for a change, at most so long, and return what changed."""

    @property
    def unfinished(self) -> frozenset[str]:
        """The files that are being written, by their real paths."""


class Notify(Protocol):
    """Lets the system watch a path while the context lasts; an `OSError` means that it cannot."""

    def __call__(self, path: Path, *, recursive: bool) -> AbstractContextManager[Reports]:
        """Start watching."""


async def rebuilds(
    folder: Folder, *, poll: bool = False, quiet: float = QUIET, longest: float = LONGEST, notify: Notify = Inotify
) -> AsyncGenerator[float]:
    """Yield once for each burst of changes after which the folder's content differs: when the burst began.

    The library of the folder is up to date then. A folder that is removed keeps everything as it was. A change that had
    to wait begins a burst when its time has come.
    """
    clock = asyncio.get_running_loop().time
    holdoff = Holdoff(quiet, longest)
    scanner = _Scanner(folder)
    with _Eyes(folder, poll=poll, notify=notify) as eyes:
        await folder.keep()
        while True:
            due = _earliest(holdoff.due(), folder.due())
            seen = await eyes.wait(PAUSE if due is None else max(0.0, due - clock()))
            if seen != NOTHING:
                holdoff.changed(clock())
                scanner.note(seen)
            due = _earliest(holdoff.due(), folder.due())
            if due is not None and clock() >= due:
                began = holdoff.rebuilt() or due
                if scanner.scan(eyes.unfinished):
                    yield began
                await folder.keep()


async def changes(
    root: Path, *, quiet: float = QUIET, longest: float = LONGEST, notify: Notify = Inotify
) -> AsyncGenerator[Seen]:
    """Yield once for each burst of changes below a folder, whatever the files are: first of all, that anything may be.

    A file counts as changed when its writer has closed it. An `OSError` means that the system does not report changes.
    """
    clock = asyncio.get_running_loop().time
    holdoff = Holdoff(quiet, longest)
    burst: Seen = NOTHING
    with _Told(root, notify) as told:
        yield await told.wait(0)
        while True:
            due = holdoff.due()
            seen = await told.wait(PAUSE if due is None else max(0.0, due - clock()))
            if seen != NOTHING:
                holdoff.changed(clock())
                burst = ANYTHING if burst is None or seen is None else burst | seen
            due = holdoff.due()
            if due is not None and clock() >= due:
                holdoff.rebuilt()
                told_of, burst = burst, NOTHING
                yield told_of


def _earliest(*times: float | None) -> float | None:
    return min((each for each in times if each is not None), default=None)


class _Scanner:
    """Scans a folder that may be away for a while."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._away = False
        self._named: Seen = NOTHING

    def note(self, seen: Seen) -> None:
        """Have this looked at in the next scan."""
        self._named = ANYTHING if self._named is None or seen is None else self._named | seen

    def scan(self, unfinished: frozenset[str]) -> bool:
        """Tell whether there is new content; says once when the folder goes and when it is back."""
        named, self._named = self._named, NOTHING
        try:
            different = self._folder.scan(named, progress=_tell, unfinished=unfinished)
        except FolderError as error:
            if not self._away:
                _log.warning("folder not found, last good versions stay in force", why=str(error))
            self._away = True
            return False
        if self._away:
            _log.info("folder found again", folder=str(self._folder.root))
        self._away = False
        return different


def _tell(done: int, total: int) -> None:
    _log.info("reading the folder", files=done, of=total)


class _Eyes(ExitStack):
    """Sees changes of a folder: the system reports them if it can; otherwise we poll for them."""

    def __init__(self, folder: Folder, *, poll: bool, notify: Notify) -> None:
        super().__init__()
        self._folder = folder
        self._polled = _Polled(folder)
        self._told = None if poll else self.enter_context(_Told(folder.root, notify))

    async def wait(self, seconds: float) -> Seen:
        """Wait for a change, at most so long, whatever becomes of the folder."""
        if self._told is not None:
            try:
                return await self._told.wait(seconds)
            except OSError as error:
                _log.warning("polling for changes, because the system cannot report them", why=str(error))
                self._told = None
                self.close()
        return await self._polled.wait(seconds)

    @property
    def unfinished(self) -> frozenset[str]:
        """The files that are being written now: their content may be a part of what it will be."""
        return self._folder.unsteady if self._told is None else self._told.unfinished


class _Polled:
    """Looks at the files from time to time."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._next = 0.0

    async def wait(self, seconds: float) -> Seen:
        """Wait for the next look, at most so long."""
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(min(seconds, max(0.0, self._next - clock())))
        start = clock()
        if start < self._next:
            return NOTHING
        changed = self._folder.peek()
        self._next = clock() + min(PAUSE, max(LOOK, SHARE * (clock() - start)))
        return ANYTHING if changed else NOTHING


class _Told(ExitStack):
    """Receives changes from the system; while there is no folder, waits for one."""

    def __init__(self, root: Path, notify: Notify) -> None:
        super().__init__()
        self._root = root
        self._notify = notify
        self._begun = False
        self._watched: _Watched | None = None
        self._reports: Reports | None = None

    async def wait(self, seconds: float) -> Seen:
        """Wait for a change, at most so long; a root that comes, goes or is replaced is one."""
        watched = _watched(self._root)
        if watched != self._watched or not self._begun:
            self._begun = True
            self._watch(watched)
            return ANYTHING
        if self._reports is None:
            await asyncio.sleep(min(seconds, CHECK))
            return NOTHING
        try:
            return await self._reports.wait(min(seconds, CHECK))
        except FileNotFoundError:
            # A root that is made anew may look just like the one that was removed.
            self._begun = False
            return ANYTHING

    @property
    def unfinished(self) -> frozenset[str]:
        return self._reports.unfinished if self._reports is not None else frozenset()

    def _watch(self, watched: "_Watched | None") -> None:
        self.close()
        self._watched, self._reports = watched, None
        if watched is None:
            return
        try:
            self._reports = self.enter_context(self._notify(watched.path, recursive=watched.recursive))
        except OSError:
            if _watched(self._root) == watched:
                raise
            self._begun = False


class _Watched(NamedTuple):
    """What is watched for a root: a file is watched through its folder, since editors replace files."""

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
