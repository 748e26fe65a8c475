"""Lets Linux tell of changes below a folder."""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Self, TypeAlias

Seen: TypeAlias = frozenset[str] | None
"""The paths that changed, below the real path of the folder; None means that anything may have changed."""

NOTHING: Final[Seen] = frozenset()
ANYTHING: Final[Seen] = None

GATHER: Final = 0.01
"""So many seconds after a change, what happened in them is told together."""


class Inotify:
    """The changes below a folder, from the moment this is made; a context that ends the watching.

    An `OSError` means that the system does not watch the folder, or not all of it.
    """

    def __init__(self, path: Path, *, recursive: bool) -> None:
        self._path = os.fspath(path)
        self._recursive = recursive
        self._folders: dict[int, str] = {}
        self._queue = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._watch()
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the watching."""
        os.close(self._queue)

    async def wait(self, seconds: float) -> Seen:
        """Wait for a change, at most so long, and return what changed."""
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._queue, readable.set)
        try:
            async with asyncio.timeout(seconds):
                await readable.wait()
        except TimeoutError:
            return NOTHING
        finally:
            loop.remove_reader(self._queue)
        await asyncio.sleep(GATHER)
        return self._take()

    def _take(self) -> Seen:
        named: set[str] = set()
        sure = True
        for folder, flags, name in self._events():
            if flags & _IGNORED:
                self._folders.pop(folder, None)
            elif flags & (_OVERFLOW | _OF_FOLDER) or not name:
                sure = False
            elif folder in self._folders:
                named.add(os.path.join(self._folders[folder], name))  # noqa: PTH118
        if sure:
            return frozenset(named)
        # New folders are watched before anybody looks into them, so nothing is lost between the two.
        self._watch()
        return ANYTHING

    def _events(self) -> Iterator[tuple[int, int, str]]:
        """Empty the queue: descriptor of the folder, flags and name of each event."""
        try:
            while block := os.read(self._queue, _BLOCK):
                at = 0
                while at < len(block):
                    folder, flags, _, length = _EVENT.unpack_from(block, at)
                    at += _EVENT.size
                    yield folder, flags, os.fsdecode(block[at : at + length].rstrip(b"\0"))
                    at += length
        except BlockingIOError:
            return

    def _watch(self) -> None:
        """Watch every folder that is there now, and no other."""
        found: dict[int, str] = {}
        for folder in _folders(self._path) if self._recursive else (self._path,):
            try:
                found[_call("inotify_add_watch", self._queue, os.fsencode(folder), _MASK)] = folder
            except OSError as error:
                # The folder is gone again, or a scan will say that it cannot be listed.
                if folder == self._path or error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                    raise
        for gone in self._folders.keys() - found.keys():
            # The system may have forgotten it by itself.
            _LIBRARY.inotify_rm_watch(self._queue, gone)
        self._folders = found


_LIBRARY: Final = ctypes.CDLL(None, use_errno=True)
_EVENT: Final = struct.Struct("iIII")
_BLOCK: Final = 2**16

# The numbers are the kernel's, from its header sys/inotify.h.
_MODIFY, _ATTRIB, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED, _ONLYDIR, _DONT_FOLLOW, _OF_FOLDER = 0x4000, 0x8000, 0x1000000, 0x2000000, 0x40000000
_MASK: Final = (
    _MODIFY | _ATTRIB | _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF
    | _ONLYDIR | _DONT_FOLLOW
)  # fmt: skip


def _call(name: str, *arguments: int | bytes) -> int:
    function = getattr(_LIBRARY, name, None)
    result: int = function(*arguments) if function else -1
    if result < 0:
        code = ctypes.get_errno() if function else errno.ENOSYS
        raise OSError(code, os.strerror(code))
    return result


def _folders(top: str) -> Iterator[str]:
    """Return the folder, whatever it is now, and the folders in it."""
    yield top
    for folder, _, _ in os.walk(top):
        if folder != top:
            yield folder
