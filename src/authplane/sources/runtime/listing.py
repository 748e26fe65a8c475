"""Lists the files below a folder.

Links that lead out of the folder are not followed, and each folder is listed once.
"""

import json
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import field
from pathlib import Path
from typing import Final, NamedTuple, Self

from authplane.core.values import dataclass


class FolderError(Exception):
    """The folder does not exist, or is neither a folder nor a file."""


def shown(path: str) -> str:
    """Write a path so that it can be printed anywhere."""
    text = os.fsencode(path).decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


class Stamp(NamedTuple):
    """What changes when a file is written or replaced."""

    modified: int
    changed: int
    size: int
    device: int
    inode: int

    def settled(self, now: int) -> bool:
        """Tell whether a write after ``now`` would show: clocks of file systems tick slowly."""
        whole_seconds = self.changed % SECOND == 0
        return self.changed < now - (2 * SECOND if whole_seconds else SECOND // 10)

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """Take what the system says of a file."""
        return cls(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_dev, found.st_ino)


SECOND: Final = 10**9


class Entry(NamedTuple):
    """A file to read: under ``opened``, which is no link."""

    opened: str
    stamp: Stamp
    unit: str = ""
    """The folder whose files are switched together, by its link `SWITCH`; empty if there is none."""


SWITCH: Final = "..data"
"""A link to the folder with the content of the one it is in, as Kubernetes makes for mounted ConfigMaps."""
APPLIED: Final = ".applied"
"""A file in such a folder: which files beside the link it takes the place of, as JSON."""


class Plain(NamedTuple):
    """A folder that was listed whole, without links and without trouble: a path in it is one file at most."""

    root: Path
    identity: tuple[int, int]
    real: str
    folders: frozenset[str]
    """Real paths of the folders in it."""

    def find(self, named: Collection[str]) -> dict[str, Entry | None] | None:
        """Find the files among real paths, None for one that is gone; nothing if only a listing can tell."""
        found: dict[str, Entry | None] = {}
        try:
            if _identity(os.stat(os.path.realpath(self.root))) != self.identity:  # noqa: PTH116
                return None
            for real in named:
                below = real.removeprefix(self.real + "/")
                if below.rpartition("/")[2] == SWITCH:
                    return None
                if below.startswith(".") or "/." in below:
                    # Without links, hidden folders are not read.
                    continue
                if real in self.folders or os.path.dirname(real) not in self.folders:  # noqa: PTH120
                    return None
                entry = _look(real)
                if entry is None or is_read(below):
                    found[os.path.join(_top(self.root), below)] = entry  # noqa: PTH118
        except (OSError, _NotAFileError):
            return None
        return found


@dataclass(slots=True)
class Listing:
    """Everything below a folder."""

    root: Path
    real: str
    identity: tuple[int, int]
    files: dict[str, Entry] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    folders: set[tuple[int, int]] = field(default_factory=set)
    """Device and inode of the folders that were listed: each is listed once, so loops end."""
    listed: set[str] = field(default_factory=set)
    """The same by path."""
    linked: bool = False
    """There is a link."""
    opened: set[str] = field(default_factory=set)
    """The files to read: a link to one of them is no other file."""
    links: list[str] = field(default_factory=list)
    """Links, for when all that is no link is known."""
    switches: dict[str, str] = field(default_factory=dict)
    """The links `SWITCH`, and where each leads."""
    beside: dict[str, Entry] = field(default_factory=dict)
    """Files behind a switch with another file in their place."""

    @property
    def plain(self) -> Plain | None:
        """The folder for lookups of single files; None if it has links or problems."""
        if self.linked or self.troubles:
            return None
        return Plain(self.root, self.identity, self.real, frozenset(self.listed))

    @property
    def steady(self) -> bool:
        """Tell that no switch was turned since it was followed: all that was read since then belongs together."""
        try:
            turned = any(os.readlink(link) != target for link, target in self.switches.items())  # noqa: PTH115
            return not turned and os.path.realpath(self.root) == self.real
        except OSError:
            return False

    def open(self, path: str, real: str, unit: str = "") -> Iterator[tuple[str, str, str]]:
        """List one folder, or what a switch leads to; return the folders in it."""
        try:
            found = os.stat(real)  # noqa: PTH116 (a string is what scandir gives)
            if _identity(found) in self.folders:
                return
            self.folders.add(_identity(found))
            self.listed.add(real)
            with os.scandir(real) as entries:
                prefix = os.path.join(path, "")  # noqa: PTH118
                for entry in entries:
                    name = entry.name
                    if name == SWITCH and entry.is_symlink():
                        yield from self._switched(path, entry.path)
                    if name.startswith("."):
                        continue
                    if is_read(name) and entry.is_file(follow_symlinks=False):
                        self._add_entry(prefix + name, entry, unit)
                    elif entry.is_symlink():
                        self.links.append(prefix + name)
                        self.linked = True
                    elif entry.is_dir(follow_symlinks=False):
                        yield prefix + name, entry.path, unit
        except FileNotFoundError:
            return
        except OSError as error:
            self.troubles[path] = (
                f"Cannot list the folder: {error.strerror}. The resources that were read from it earlier stay in "
                f"force. {_PERMIT}"
            )
            self.unlisted.append(os.path.join(path, ""))  # noqa: PTH118

    def _switched(self, path: str, link: str) -> Iterator[tuple[str, str, str]]:
        """Return the folder behind a switch, as if it were the one that the switch is in."""
        self.linked = True
        try:
            self.switches[link] = os.readlink(link)  # noqa: PTH115
            target = os.path.realpath(link, strict=True)
        except OSError:
            return
        if os.path.dirname(target) == os.path.dirname(link):  # noqa: PTH120
            yield path, target, path or "."

    def units(self) -> list[str]:
        """Return the folders whose files are switched together, inner ones first."""
        return sorted({each.unit for each in self.files.values() if each.unit}, key=len, reverse=True)

    def supersede(self) -> None:
        """Leave out the files that what was applied takes the place of."""
        for link in self.switches:
            folder = os.path.dirname(link)  # noqa: PTH120
            unit = os.path.join(_top(self.root), folder.removeprefix(self.real).removeprefix("/"))  # noqa: PTH118
            for below, stamp in superseded(link).items():
                path = os.path.join(unit, below)  # noqa: PTH118
                entry = self.files.get(path)
                if entry is not None and entry.stamp == stamp:
                    del self.files[path]
                    if path in self.beside:
                        self.files[path] = self.beside[path]

    def _add_entry(self, path: str, entry: os.DirEntry[str], unit: str) -> None:
        # A file that vanishes here must not end the listing: the others would seem to be gone too.
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        self.add(path, entry.path, found, unit)

    def follow(self, path: str) -> Iterator[tuple[str, str, str]]:
        """Follow a link unless it leads out; return it if it is a folder."""
        target = os.path.realpath(path)
        wanted = is_read(path)
        try:
            found = os.stat(target)  # noqa: PTH116
        except OSError as error:
            if wanted and not self._shows(path):
                self.troubles[path] = f"Cannot follow the link: {error.strerror}. Correct or remove it."
            return
        folder = stat.S_ISDIR(found.st_mode)
        if not folder and not wanted:
            return
        if os.path.commonpath((self.real, target)) != self.real:
            self.troubles[path] = (
                "The link points outside the folder, so authplane does not follow it. Copy the file into the folder."
            )
        elif folder:
            yield path, target, ""
        elif stat.S_ISREG(found.st_mode) and target not in self.opened:
            self.add(path, target, found)

    def _shows(self, link: str) -> bool:
        """Tell whether a link is one of those that show what is behind a switch: such links go later than it."""
        switch = os.path.join(os.path.realpath(os.path.dirname(link)), SWITCH)  # noqa: PTH118, PTH120
        return switch in self.switches and os.readlink(link).startswith(f"{SWITCH}/")  # noqa: PTH115

    def add(self, path: str, opened: str, found: os.stat_result, unit: str = "") -> None:
        """Note a file to read; one behind a switch does not take the place of one that is there."""
        self.opened.add(opened)
        (self.beside if unit and path in self.files else self.files)[path] = Entry(opened, Stamp.of(found), unit)


_PERMIT: Final = "Grant this user permission to read the folder."
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_TESTS: Final = tuple(f".test{suffix}" for suffix in _SUFFIXES)
_SCHEMA: Final = "authplane.schema.json"
"""What `authplane schema` prints, which users keep beside their resources for editors."""


def is_read(name: str) -> bool:
    """Tell whether a file of this name contains resources: policy tests and our schema may be beside them."""
    return name.endswith(_SUFFIXES) and not name.endswith(_TESTS) and name.rpartition("/")[2] != _SCHEMA


def list_files(root: Path) -> Listing:
    """Find every file to read below ``root``."""
    try:
        real = os.path.realpath(root, strict=True)
        found = os.stat(real)  # noqa: PTH116
    except (OSError, ValueError) as error:
        raise FolderError(
            f"Cannot read {shown(str(root))}: {getattr(error, 'strerror', error)}. Check the path and its permissions."
        ) from error
    listing = Listing(root, real, _identity(found))
    if stat.S_ISREG(found.st_mode):
        listing.add(str(root), real, found)
        return listing
    if not stat.S_ISDIR(found.st_mode):
        raise FolderError(f"{shown(str(root))} is neither a folder nor a file. Use a folder or a YAML file.")
    top = _top(root)
    folders = [(top, real, "")]
    while folders or listing.links:
        while folders:
            folders.extend(listing.open(*folders.pop()))
        links, listing.links = sorted(listing.links), []
        for link in links:
            folders.extend(listing.follow(link))
    listing.supersede()
    if top in listing.troubles:
        raise FolderError(f"{shown(str(root))}: {listing.troubles[top].partition('.')[0]}. {_PERMIT}")
    return listing


def superseded(applied: str) -> dict[str, Stamp]:
    """Return the files that the content of a folder takes the place of, by their paths from there."""
    try:
        with open(os.path.join(applied, APPLIED), encoding="utf-8") as file:  # noqa: PTH118, PTH123 (a text, as here)
            return {str(below): Stamp(*map(int, stamp)) for below, stamp in json.load(file).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _top(root: Path) -> str:
    return "" if root == Path() else str(root)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class _NotAFileError(Exception):
    """Something else than a regular file is there."""


def _look(real: str) -> Entry | None:
    """Look at one path; None if nothing is there."""
    try:
        found = os.lstat(real)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise _NotAFileError
    return Entry(real, Stamp.of(found))
