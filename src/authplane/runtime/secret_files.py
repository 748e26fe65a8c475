"""Warns of secret files that every user can read."""

import os
import stat
from collections.abc import Iterable
from typing import Final

import structlog

_log: Final = structlog.stdlib.get_logger()


def warn_of_open_files(paths: Iterable[str]) -> None:
    """Log a warning for each secret file that every user of this machine can read.

    Empty paths and missing files are skipped; the code that reads a file reports that it is missing.
    """
    for path in paths:
        if path and _is_open(path):
            _log.warning("secret file is readable by every user; remove read permission for others", file=path)


def _is_open(path: str) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116 (a path that no file can have is none of ours)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and bool(found.st_mode & stat.S_IROTH)
