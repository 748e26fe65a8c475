"""Files that only their owner should be able to read."""

import os
import stat
from collections.abc import Iterable
from typing import Final

import structlog

_log: Final = structlog.stdlib.get_logger()


def warn_of_open_files(paths: Iterable[str]) -> None:
    """Say in the log which of these secrets every user of this machine can read; the empty path names none.

    Whether a file is there at all is for those to say who read it.
    """
    for path in paths:
        if path and _is_open(path):
            _log.warning("every user of this machine can read a secret: take the rights of others away", file=path)


def _is_open(path: str) -> bool:
    try:
        found = os.stat(path)  # noqa: PTH116 (a path that no file can have is none of ours)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and bool(found.st_mode & stat.S_IROTH)
