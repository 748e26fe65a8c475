"""Receives changes below a folder from Linux."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self, TypeAlias

import asyncinotify
from asyncinotify import Event, Mask, Watch

Seen: TypeAlias = frozenset[str] | None
"""The paths that changed, below the real path of the folder; None means that anything may have changed."""

NOTHING: Final[Seen] = frozenset()
ANYTHING: Final[Seen] = None

LONGEST_WRITE: Final = 60.0
"""A file counts as finished so many seconds after the last write: some file systems never report that it is closed."""

GATHER: Final = 0.01
"""Seconds for which changes are gathered after the first, and reported together."""

_MASK: Final = (
    Mask.MODIFY | Mask.ATTRIB | Mask.CLOSE_WRITE | Mask.MOVE | Mask.CREATE | Mask.DELETE | Mask.DELETE_SELF
    | Mask.MOVE_SELF | Mask.ONLYDIR | Mask.DONT_FOLLOW
)  # fmt: skip
_UNSURE: Final = Mask.Q_OVERFLOW | Mask.ISDIR
_FINISHED: Final = Mask.CLOSE_WRITE | Mask.MOVE | Mask.DELETE
"""After one of these, the file under a name is as its writer wants it."""


class Inotify:
    """The changes below a folder, from the moment this is made; a context that ends the watching.

    An `OSError` means that the system does not watch the folder, or not all of it.
    """

    def __init__(self, path: Path, *, recursive: bool) -> None:
        self._path = os.fspath(path)
        self._recursive = recursive
        self._folders: dict[int, tuple[str, Watch]] = {}
        self._written: dict[str, float] = {}
        """Files that are being written, and when they last were."""
        self._queue = asyncinotify.Inotify(cache_size=256, sync_timeout=0)
        try:
            self._watch()
        except OSError:
            self._queue.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.close()

    @property
    def unfinished(self) -> frozenset[str]:
        """The files that a writer has changed and not closed."""
        return frozenset(self._written)

    async def wait(self, seconds: float) -> Seen:
        """Wait for a change, at most so long, and return what changed.

        A file that is being written has changed when its writer closes it.
        """
        # The library's own wait loses what it has read when it is cancelled, so it only reads here.
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._queue.fd, readable.set)
        try:
            async with asyncio.timeout(seconds):
                await readable.wait()
        except TimeoutError:
            return self._given_up(loop.time())
        finally:
            loop.remove_reader(self._queue.fd)
        await asyncio.sleep(GATHER)
        return self._take(loop.time())

    def _given_up(self, now: float) -> Seen:
        """Return the files that have not been written for long, whether they were closed or not."""
        found = frozenset(path for path, last in self._written.items() if now - last > LONGEST_WRITE)
        for path in found:
            del self._written[path]
        return found

    def _take(self, now: float) -> Seen:
        named: set[str] = set()
        sure = True
        for event in self._events():
            known = self._folders.get(event.watch.wd) if event.watch is not None else None
            if event.mask & Mask.IGNORED:
                if event.watch is not None:
                    self._folders.pop(event.watch.wd, None)
            elif event.mask & _UNSURE or event.name is None:
                sure = False
                if event.mask & Mask.Q_OVERFLOW:
                    # Among the reports that are lost may be that a file was closed.
                    self._written.clear()
            elif known is not None:
                path = os.path.join(known[0], event.name)  # noqa: PTH118 (a text, as scans use them)
                if event.mask & Mask.MODIFY:
                    self._written[path] = now
                    continue
                named.add(path)
                if event.mask & _FINISHED:
                    self._written.pop(path, None)
        if sure:
            return frozenset(named)
        # New folders are watched before they are read, so nothing is lost between the two.
        self._watch()
        return ANYTHING

    def _events(self) -> Iterator[Event]:
        """Empty the queue."""
        while (event := self._queue.sync_get()) is not None:
            yield event

    def _watch(self) -> None:
        """Watch every folder that is there now, and no other."""
        found: dict[int, tuple[str, Watch]] = {}
        for folder in _folders(self._path) if self._recursive else (self._path,):
            try:
                watch = self._queue.add_watch(folder, _MASK)
            except OSError as error:
                # The folder is gone again, or a scan will say that it cannot be listed.
                if folder == self._path or error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                    raise
            else:
                found[watch.wd] = (folder, watch)
        for gone in self._folders.keys() - found.keys():
            with contextlib.suppress(OSError):  # the system may have forgotten it by itself
                self._queue.rm_watch(self._folders[gone][1])
        self._folders = found


def _folders(top: str) -> Iterator[str]:
    """Return the folder, whatever it is now, and the folders in it."""
    yield top
    for folder, _, _ in os.walk(top):
        if folder != top:
            yield folder
