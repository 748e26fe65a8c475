"""Reads a folder of resources into a library.

Links that lead out of the folder are not followed, files that are not regular are never opened for long, and an
unreadable file is a finding, not an exception. The one exception is `FolderError`: there is no folder.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from authplane.resources.file_documents import Source
from authplane.runtime.background import beside
from authplane.runtime.without_collection import without_collection
from authplane.sources.document_versions import Library
from authplane.sources.required_targets import RequiredTargets
from authplane.sources.runtime.last_good_store import Gone, LastGood, State
from authplane.sources.runtime.listing import SECOND, Entry, FolderError, Listing, Plain, Stamp, list_files, shown

__all__ = ["LARGEST_FILE", "Folder", "FolderError", "Progress", "shown"]

LARGEST_FILE: Final = 256 * 2**20
"""A larger file is not read, in bytes."""

LOOSEN_AFTER: Final = 2.0
"""So many seconds a file must be unchanged before a change of it that takes protection away comes into force."""

_MOST_WAITS: Final = 10
"""So many times that long a change waits at most: a file that is written again and again may tighten, too."""

Progress: TypeAlias = Callable[[int, int], None]
"""Takes how many files are done, and how many there are."""


class Folder:
    """The files below ``root`` (or the one file that it is) and the library of what they say."""

    def __init__(
        self,
        root: Path,
        largest_file: int = LARGEST_FILE,
        progress_every: float = 1.0,
        loosen_after: float = LOOSEN_AFTER,
        last_good: LastGood | None = None,
    ) -> None:
        self.root = root
        self._last_good = last_good
        self._kept = False
        """The versions in force are on disk, except those that the library has not reported yet."""
        self._keep_at = 0.0
        self._begun = False
        self._loosen_after = loosen_after
        self._touched: dict[str, _Touched] = {}
        """Files that changed within that time, and when."""
        self._targets = RequiredTargets()
        self._kept_policies: Mapping[str, str] = {}
        """The policies on disk that are in no file any more."""
        self.library = Library(self._targets)
        self._largest = largest_file
        self._progress_every = int(progress_every * SECOND)
        self._seen: dict[str, _Seen] = {}
        self._troubles: dict[str, str] = {}
        self._look: dict[str, Stamp] | None = None
        self.unsteady: frozenset[str] = frozenset()
        """The files, by the path under which they are opened, that the last two looks did not find the same."""
        self._plain: Plain | None = None

    def peek(self) -> bool:
        """Tell whether a scan might find something new since the last look; nothing is read.

        A file that was written a moment ago counts as changed, since another write would not show yet.
        """
        now, before, waited = time.time_ns(), self._look, bool(self.unsteady)
        known = before if before is not None else {path: seen.stamp for path, seen in self._seen.items()}
        self.unsteady = frozenset()
        try:
            found = list_files(self.root).files
        except FolderError:
            self._look = None
        else:
            self._look = {path: entry.stamp for path, entry in found.items()}
            self.unsteady = frozenset(each.opened for path, each in found.items() if known.get(path) != each.stamp)
        return waited or self._look != before or not all(stamp.settled(now) for stamp in (self._look or {}).values())

    def scan(
        self,
        named: Collection[str] | None = None,
        progress: Progress | None = None,
        unfinished: Collection[str] = frozenset(),
    ) -> bool:
        """Tell the library what changed since the last scan; False if nothing did.

        With ``named``, nothing has changed but these paths, which start with the real path of the root: the others
        need no look. The ``unfinished`` files are being written and stay as they were read before. ``progress``
        receives every ``progress_every`` seconds how many of how many files are done.
        """
        started = time.time_ns()
        if not self._begun:
            self._restore()
        found = self._plain.find(named) if self._plain is not None and named is not None else None
        if found is not None:
            changed = self._take(found, started, _silence, unfinished)
        else:
            with without_collection():
                changed = False
                for _ in range(_TRIES):
                    different, steady = self._scan_all(started, progress or _silence, unfinished)
                    changed = different or changed
                    if steady:
                        break
        self._begun = True
        return self.library.settle(self._fresh(unfinished)) if changed or self.due() is not None else False

    async def quiet(self) -> None:
        """Wait for changes that loosen and will take effect soon: who starts should not begin with what is about to go.

        A folder that goes on changing is not waited for.
        """
        import asyncio  # noqa: PLC0415 (commands that only read a folder need no event loop)

        limit = time.monotonic() + self._loosen_after
        while (due := self.due()) is not None and due <= limit:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.scan()

    def _restore(self) -> None:
        """Begin with the last good versions on disk, if there are any."""
        state = self._last_good.read() if self._last_good is not None else None
        if state is None:
            return
        self._kept, self._kept_policies = True, state.policies
        self._targets.remember(state.policies)
        self.library.restore({self._path(below): pieces for below, pieces in state.files.items()})
        for below in state.files:
            self._seen[self._path(below)] = _Seen(_NEVER, b"", settled=False, opened="")

    def _path(self, below: str) -> str:
        top = "" if self.root == Path() else str(self.root)
        return os.path.join(top, below) if below else top  # noqa: PTH118 (as listings write paths)

    async def keep(self) -> None:
        """Write the versions in force to disk, for the next start."""
        if self._last_good is None or not self._begun or time.monotonic() < self._keep_at:
            return
        written = self._kept and await self._write(self.library.unsaved(), everything=False)
        # Where not even the other versions are on the disk any more, all of them are written again.
        self._kept = written or await self._write(self.library.in_force(), everything=True)
        self._keep_at = 0.0 if self._kept else time.monotonic() + _KEEP_AGAIN

    async def _write(self, changed: Mapping[str, Source | None], *, everything: bool) -> bool:
        top, last_good, before, policies = (
            shown(self._path("")),
            self._last_good,
            self._kept_policies,
            self._targets.kept(),
        )
        if last_good is None or not (everything or changed or policies != before):
            return True
        files = {file.removeprefix(top).removeprefix("/") if top else file: source for file, source in changed.items()}
        state = State(
            {each: source.pieces if source.usable else None for each, source in files.items() if source},
            {each: text for each, text in policies.items() if everything or before.get(each) != text},
        )
        gone = Gone(files.keys() - state.files.keys(), before.keys() - policies.keys())
        done = await beside(lambda: last_good.write(state, gone, everything=everything))
        if done:
            self._kept_policies = policies
        return done

    def due(self) -> float | None:
        """Return when a change that loosens may come into force if nothing else happens; None if none waits."""
        held = {each.file for each in self.library.current().held}
        return min((self._quiet_at(each) for file, each in self._touched.items() if file in held), default=None)

    def _quiet_at(self, each: "_Touched") -> float:
        """Return when a file counts as quiet, unless it changes before; at some time even if it does."""
        return min(each.when + self._loosen_after, each.since + _MOST_WAITS * self._loosen_after)

    def _fresh(self, unfinished: Collection[str]) -> frozenset[str]:
        """Return the files that changed a moment ago, or are changing."""
        now = time.monotonic()
        for file, each in list(self._touched.items()):
            if each.opened in unfinished:
                self._touched[file] = _Touched(now, each.opened, now)
            elif now >= self._quiet_at(each):
                del self._touched[file]
        return frozenset(self._touched)

    def _touch(self, path: str, opened: str, age: float = 0.0) -> None:
        """Note that a file changed, so many seconds ago."""
        if self._loosen_after > age:
            when, before = time.monotonic() - age, self._touched.get(shown(path))
            self._touched[shown(path)] = _Touched(when, opened, before.since if before is not None else when)

    def _scan_all(self, started: int, progress: Progress, unfinished: Collection[str]) -> tuple[bool, bool]:
        """Read everything that changed; tell whether something did, and whether all of it belongs together."""
        self._plain = None
        listing = list_files(self.root)
        changed = self._forget(listing)
        changed = self._take(listing.files, started, progress, unfinished) or changed
        changed = self._complain(listing.troubles) or changed
        self._plain = listing.plain
        return changed, listing.steady

    def _take(
        self, found: Mapping[str, Entry | None], started: int, progress: Progress, unfinished: Collection[str]
    ) -> bool:
        """Read the files that may have changed; tell whether one did."""
        changed, told = False, started
        for done, (path, entry) in enumerate(found.items()):
            before = self._seen.get(path)
            if entry is None:
                changed = self._vanished(path) or changed
            elif entry.opened not in unfinished and (
                before is None or not before.settled or before.stamp != entry.stamp
            ):
                changed = self._read(path, entry, before, started) or changed
            if done % 100 == 99 and time.time_ns() - told >= self._progress_every:
                told = time.time_ns()
                progress(done + 1, len(found))
        return changed

    def _forget(self, listing: Listing) -> bool:
        """Remove the files that are gone; those below a folder that cannot be listed may still be there."""
        gone = [
            path
            for path in self._seen.keys() - listing.files.keys()
            if path not in listing.troubles and not path.startswith(tuple(listing.unlisted))
        ]
        units = listing.units() if gone and listing.switches else []
        for path in gone:
            self._vanished(path, next((unit for unit in units if unit == "." or path.startswith(f"{unit}/")), ""))
        return bool(gone)

    def _read(self, path: str, entry: Entry, before: "_Seen | None", started: int) -> bool:
        """Read a file that may have changed; tell whether it did."""
        try:
            content = _content(entry.opened, self._largest)
        except FileNotFoundError:
            return self._vanished(path)
        except OSError as error:
            return self._refused(
                path, entry, before, f"Cannot read the file: {error.strerror}. Make it readable, or remove it."
            )
        except _NotReadError as error:
            return self._refused(path, entry, before, str(error))
        digest = hashlib.blake2b(content, digest_size=16).digest()
        self._seen[path] = _Seen(entry.stamp, digest, entry.stamp.settled(started), entry.opened)
        if before is not None and before.digest == digest:
            return False
        # A file that changed before the first scan may have been quiet for long.
        age = 0.0 if self._begun else max(0, started - entry.stamp.changed) / SECOND
        self._touch(path, entry.opened, age)
        self.library.changed(shown(path), content, shown(entry.unit))
        return True

    def _vanished(self, path: str, unit: str = "") -> bool:
        seen = self._seen.pop(path, None)
        if seen is None:
            return False
        self._touch(path, seen.opened)
        self.library.removed(shown(path), shown(unit))
        return True

    def _refused(self, path: str, entry: Entry, before: "_Seen | None", why: str) -> bool:
        """Note that a file cannot be read; it is tried again with each scan."""
        digest = why.encode()
        self._seen[path] = _Seen(_NEVER, digest, settled=False, opened=path)
        if before is not None and before.digest == digest:
            return False
        self.library.unreadable(shown(path), why, shown(entry.unit))
        return True

    def _complain(self, troubles: dict[str, str]) -> bool:
        """Report paths that cannot be read as files."""
        changed = troubles != self._troubles
        for path in self._troubles.keys() - troubles.keys() - self._seen.keys():
            self._touch(path, path)
            self.library.removed(shown(path))
        for path, why in troubles.items():
            if self._troubles.get(path) != why:
                self._seen.pop(path, None)
                self.library.unreadable(shown(path), why)
        self._troubles = troubles
        return changed


class _NotReadError(Exception):
    """A file that is there is not to be read."""


_NEVER: Final = Stamp(0, 0, 0, 0, 0)
_BLOCK: Final = 2**20
_TRIES: Final = 5
"""So often a folder is read again whose content is switched meanwhile."""
_KEEP_AGAIN: Final = 60.0
"""After so many seconds versions are written again, if the disk did not take them."""


class _Seen(NamedTuple):
    """A file as it was when it was last read."""

    stamp: Stamp
    digest: bytes
    settled: bool
    opened: str


class _Touched(NamedTuple):
    """When a file changed, and under which path it is or was opened."""

    when: float
    opened: str
    since: float
    """When it began to change."""


def _silence(_done: int, _total: int) -> None:
    """Say nothing."""


def _content(path: str, largest: int) -> bytes:
    """Read a regular file; anything else is not waited for."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise _NotReadError("This is not a regular file. Replace or remove it.")
        # Room for the largest file at once would cost more than all else here; but a file may grow meanwhile.
        size, room, pieces = found.st_size, found.st_size + 1, []
        while size <= largest and (piece := os.read(opened, room)):
            pieces.append(piece)
            size, room = max(size, sum(map(len, pieces))), _BLOCK
        if size > largest:
            raise _NotReadError(
                f"The file is larger than {largest} bytes, so authplane does not read it. Split the file."
            )
        return b"".join(pieces)
    finally:
        os.close(opened)
