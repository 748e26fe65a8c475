"""Reads a folder of resources into a library.

What leads out of the folder is not followed, what is no regular file is never opened for long, and what cannot be read
is a finding, not an exception. The one exception is `FolderError`: there is no folder.
"""

import gc
import hashlib
import os
import stat
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from authplane.resources.library import Library

LARGEST_FILE: Final = 256 * 2**20
"""A larger file is not read, in bytes."""


class FolderError(Exception):
    """The folder does not exist, or is neither a folder nor a file."""


class Folder:
    """The files below ``root`` (or the one file that it is) and the library of what they say."""

    def __init__(self, root: Path, largest_file: int = LARGEST_FILE) -> None:
        self.root = root
        self.library = Library()
        self._largest = largest_file
        self._seen: dict[str, _Seen] = {}
        self._troubles: dict[str, str] = {}
        self._look: dict[str, _Stamp] | None = None

    def peek(self) -> bool:
        """Tell whether a scan might find something new since the last look; nothing is read.

        A file that was written a moment ago counts as changed, since another write would not show yet.
        """
        now, before = time.time_ns(), self._look
        try:
            self._look = {path: entry.stamp for path, entry in _list(self.root).files.items()}
        except FolderError:
            self._look = None
        return self._look != before or not all(stamp.settled(now) for stamp in (self._look or {}).values())

    def scan(self) -> bool:
        """Tell the library what changed since the last scan; False if nothing did."""
        started = time.time_ns()
        with _without_collection():
            listing = _list(self.root)
            changed = self._forget(listing)
            for path, entry in listing.files.items():
                before = self._seen.get(path)
                if before is None or not before.settled or before.stamp != entry.stamp:
                    changed = self._read(path, entry, before, started) or changed
            changed = self._complain(listing.troubles) or changed
            if changed:
                # What is good now is the last good version for the next scan, whoever asks in between.
                self.library.current()
            return changed

    def _forget(self, listing: "_Listing") -> bool:
        """Remove the files that are gone; those below a folder that cannot be listed may still be there."""
        gone = [
            path
            for path in self._seen.keys() - listing.files.keys()
            if path not in listing.troubles and not path.startswith(tuple(listing.unlisted))
        ]
        for path in gone:
            del self._seen[path]
            self.library.removed(shown(path))
        return bool(gone)

    def _read(self, path: str, entry: "_Entry", before: "_Seen | None", started: int) -> bool:
        """Read a file that may have changed; tell whether it did."""
        try:
            content = _content(entry.opened, self._largest)
        except FileNotFoundError:
            return self._vanished(path)
        except OSError as error:
            return self._refused(path, before, f"the file cannot be read: {error.strerror}")
        except _NotReadError as error:
            return self._refused(path, before, str(error))
        digest = hashlib.blake2b(content, digest_size=16).digest()
        self._seen[path] = _Seen(entry.stamp, digest, entry.stamp.settled(started))
        if before is not None and before.digest == digest:
            return False
        self.library.changed(shown(path), content)
        return True

    def _vanished(self, path: str) -> bool:
        if self._seen.pop(path, None) is None:
            return False
        self.library.removed(shown(path))
        return True

    def _refused(self, path: str, before: "_Seen | None", why: str) -> bool:
        """Note that a file cannot be read; it is tried again with each scan."""
        digest = why.encode()
        self._seen[path] = _Seen(_NEVER, digest, settled=False)
        if before is not None and before.digest == digest:
            return False
        self.library.unreadable(shown(path), why)
        return True

    def _complain(self, troubles: dict[str, str]) -> bool:
        """Report what was met on the way and is no file to read."""
        changed = troubles != self._troubles
        for path in self._troubles.keys() - troubles.keys() - self._seen.keys():
            self.library.removed(shown(path))
        for path, why in troubles.items():
            if self._troubles.get(path) != why:
                self._seen.pop(path, None)
                self.library.unreadable(shown(path), why)
        self._troubles = troubles
        return changed


def shown(path: str) -> str:
    """Write a path so that it can be printed anywhere."""
    text = os.fsencode(path).decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


class _NotReadError(Exception):
    """A file that is there is not to be read."""


class _Stamp(NamedTuple):
    """What changes when a file is written or replaced."""

    modified: int
    changed: int
    size: int
    device: int
    inode: int

    def settled(self, now: int) -> bool:
        """Tell whether a write after ``now`` would show: clocks of file systems tick slowly."""
        whole_seconds = self.changed % _SECOND == 0
        return self.changed < now - (2 * _SECOND if whole_seconds else _SECOND // 10)


_SECOND: Final = 10**9
_NEVER: Final = _Stamp(0, 0, 0, 0, 0)


class _Seen(NamedTuple):
    """A file as it was when it was last read."""

    stamp: _Stamp
    digest: bytes
    settled: bool


class _Entry(NamedTuple):
    """A file to read: under ``opened``, which is no link."""

    opened: str
    stamp: _Stamp


@dataclass(slots=True)
class _Listing:
    """Everything below a folder."""

    real: str
    files: dict[str, _Entry] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    folders: set[tuple[int, int]] = field(default_factory=set)
    """Device and inode of the folders that were listed: each is listed once, so loops end."""
    opened: set[str] = field(default_factory=set)
    """The files to read: a link to one of them is no other file."""
    links: list[str] = field(default_factory=list)
    """Links, for when all that is no link is known."""

    def open(self, path: str, real: str) -> Iterator[tuple[str, str]]:
        """List one folder; return the folders in it."""
        try:
            found = os.stat(real)  # noqa: PTH116 (a string is what scandir gives)
            if (found.st_dev, found.st_ino) in self.folders:
                return
            self.folders.add((found.st_dev, found.st_ino))
            with os.scandir(real) as entries:
                prefix = os.path.join(path, "")  # noqa: PTH118
                for entry in entries:
                    name = entry.name
                    if name.startswith("."):
                        continue
                    if name.endswith(_SUFFIXES) and entry.is_file(follow_symlinks=False):
                        self._add_entry(prefix + name, entry)
                    elif entry.is_symlink():
                        self.links.append(prefix + name)
                    elif entry.is_dir(follow_symlinks=False):
                        yield prefix + name, entry.path
        except FileNotFoundError:
            return
        except OSError as error:
            self.troubles[path] = f"the folder cannot be listed: {error.strerror}; what was read from it stays in force"
            self.unlisted.append(os.path.join(path, ""))  # noqa: PTH118

    def _add_entry(self, path: str, entry: os.DirEntry[str]) -> None:
        # A file that vanishes here must not end the listing: the others would seem to be gone too.
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        self.add(path, entry.path, found)

    def follow(self, path: str) -> Iterator[tuple[str, str]]:
        """Follow a link unless it leads out; return it if it is a folder."""
        target = os.path.realpath(path)
        wanted = path.endswith(_SUFFIXES)
        try:
            found = os.stat(target)  # noqa: PTH116
        except OSError as error:
            if wanted:
                self.troubles[path] = f"the link cannot be followed: {error.strerror}"
            return
        folder = stat.S_ISDIR(found.st_mode)
        if not folder and not wanted:
            return
        if os.path.commonpath((self.real, target)) != self.real:
            self.troubles[path] = "the link leads out of the folder and is not followed"
        elif folder:
            yield path, target
        elif stat.S_ISREG(found.st_mode) and target not in self.opened:
            self.add(path, target, found)

    def add(self, path: str, opened: str, found: os.stat_result) -> None:
        """Note a file to read."""
        self.opened.add(opened)
        stamp = _Stamp(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_dev, found.st_ino)
        self.files[path] = _Entry(opened, stamp)


_SUFFIXES: Final = (".yaml", ".yml", ".json")


def _list(root: Path) -> _Listing:
    """Find every file to read below ``root``."""
    try:
        real = os.path.realpath(root, strict=True)
        found = os.stat(real)  # noqa: PTH116
    except (OSError, ValueError) as error:
        raise FolderError(f"{shown(str(root))} cannot be read: {getattr(error, 'strerror', error)}") from error
    listing = _Listing(real)
    if stat.S_ISREG(found.st_mode):
        listing.add(str(root), real, found)
        return listing
    if not stat.S_ISDIR(found.st_mode):
        raise FolderError(f"{shown(str(root))} is neither a folder nor a file")
    top = "" if root == Path() else str(root)
    folders = [(top, real)]
    while folders or listing.links:
        while folders:
            folders.extend(listing.open(*folders.pop()))
        links, listing.links = sorted(listing.links), []
        for link in links:
            folders.extend(listing.follow(link))
    if top in listing.troubles:
        raise FolderError(f"{shown(str(root))}: {listing.troubles[top].partition(';')[0]}")
    return listing


def _content(path: str, largest: int) -> bytes:
    """Read a regular file; anything else is not waited for."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    with open(opened, "rb", buffering=0) as file:  # noqa: PTH123 (the descriptor is open)
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise _NotReadError("this is not a regular file")
        content = file.read(largest + 1) if found.st_size <= largest else None
        if content is None or len(content) > largest:
            raise _NotReadError(f"the file is larger than {largest} bytes and is not read")
        return content


@contextmanager
def _without_collection() -> Generator[None]:
    """Hold the garbage collector: it would walk the growing library again and again and find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
