"""Finds tests of policies, and the files that they are about."""

import glob
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library
from authplane.sources.required_targets import RequiredTargets
from authplane.sources.runtime.listing import Entry, list_files, shown

SUFFIXES: Final = (".test.yaml", ".test.yml", ".test.json")
_RESOURCES: Final = frozenset({".yaml", ".yml", ".json"})


def find_tests(root: Path) -> tuple[Path, ...]:
    """Return the files with tests below a folder, or the one file that ``root`` is; raises `FolderError`."""
    list_files(root)  # says what is wrong with a folder that cannot be listed
    if not root.is_dir():
        return (root,)
    found = (path for path in root.rglob("*") if path.name.endswith(SUFFIXES) and path.is_file())
    return tuple(sorted(path for path in found if not _is_hidden(path.relative_to(root))))


def _is_hidden(below: Path) -> bool:
    return any(part.startswith(".") for part in below.parts)


def match_paths(base: Path, pattern: str) -> tuple[Path, ...]:
    """Return what a path or a pattern such as ``policies/*.yaml`` means below ``base``; it may be nothing.

    Of what a pattern matches, only folders and files of resources count.
    """
    if not glob.has_magic(pattern):
        found = base / pattern
        return (found,) if found.exists() else ()
    matched = [base / each for each in sorted(glob.glob(pattern, root_dir=base, recursive=True))]  # noqa: PTH207
    return tuple(each for each in matched if each.is_dir() or each.suffix in _RESOURCES)


def load_paths(paths: Iterable[Path]) -> Loaded:
    """Read files and folders together, without tests; raises `FolderError`."""
    library, seen = Library(RequiredTargets()), set[str]()
    for root in paths:
        listing = list_files(root)
        for path, why in listing.troubles.items():
            library.unreadable(shown(path), why)
        for path, entry in sorted(listing.files.items()):
            if not path.endswith(SUFFIXES) and entry.opened not in seen:
                seen.add(entry.opened)
                _read(library, path, entry)
    return library.current()


def _read(library: Library, path: str, entry: Entry) -> None:
    try:
        library.changed(shown(path), Path(entry.opened).read_bytes())
    except OSError as error:
        library.unreadable(shown(path), f"Cannot read the file: {error.strerror}. Check the path and its permissions.")
