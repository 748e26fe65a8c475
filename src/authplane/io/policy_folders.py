"""Finds tests of policies, and the files that they are about."""

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from authplane.io.listing import Entry, FolderError, list_files, shown
from authplane.resources.library import Library
from authplane.resources.loaded import Loaded

SUFFIXES: Final = (".test.yaml", ".test.yml", ".test.json")


def find_tests(root: Path) -> tuple[Path, ...]:
    """Return the files with tests below a folder, or the one file that ``root`` is; raises `FolderError`."""
    listing = list_files(root)
    if set(listing.files) == {str(root)}:
        return (root,)
    return tuple(Path(path) for path in sorted(listing.files) if path.endswith(SUFFIXES))


def match_paths(base: Path, pattern: str) -> tuple[Path, ...]:
    """Return what a path or a pattern such as ``policies/*.yaml`` means below ``base``; it may be nothing."""
    if not glob.has_magic(pattern):
        found = base / pattern
        return (found,) if found.exists() else ()
    return tuple(base / each for each in sorted(glob.glob(pattern, root_dir=base, recursive=True)))  # noqa: PTH207


def load_paths(paths: Iterable[Path]) -> Loaded:
    """Read files and folders together, without tests; raises `FolderError`."""
    library = Library()
    for path, entry in _files(paths):
        try:
            library.changed(shown(path), Path(entry.opened).read_bytes())
        except OSError as error:
            library.unreadable(shown(path), f"the file cannot be read: {error.strerror}")
    return library.current()


def _files(paths: Iterable[Path]) -> Iterator[tuple[str, Entry]]:
    """Yield every file once."""
    seen: set[str] = set()
    for root in paths:
        listing = list_files(root)
        if listing.troubles:
            path, why = min(listing.troubles.items())
            raise FolderError(f"{shown(path)}: {why}")
        for path, entry in sorted(listing.files.items()):
            if not path.endswith(SUFFIXES) and entry.opened not in seen:
                seen.add(entry.opened)
                yield path, entry
