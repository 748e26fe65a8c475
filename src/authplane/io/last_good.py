"""The last good versions of a folder's files, kept on disk for whoever starts next.

One database for each folder, which all processes that read the folder share. It holds what files hold, keys and
passwords too, so only its owner may read it; and since it decides what is in force, one that others could have written
is not believed.
"""

import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import structlog

FORMAT: Final = 1
"""The version of what is written here; another is not read."""
_WAIT: Final = 2.0
"""Seconds to wait for another process that writes."""
_DIGITS: Final = 16

Pieces: TypeAlias = tuple[tuple[int, str], ...]
"""The documents of a file, each with the number of lines before it."""
Versions: TypeAlias = Mapping[str, Pieces | None]
"""By the path below the folder; None stands for a file of which no version was ever good."""

_log: Final = structlog.stdlib.get_logger()

_SCHEMA: Final = """
CREATE TABLE installation (folder TEXT NOT NULL);
CREATE TABLE files (path TEXT PRIMARY KEY, hash BLOB, content BLOB) WITHOUT ROWID;
"""


def default_state_dir() -> Path:
    """Return where state is kept if nobody says where: as systemd says, or as desktops do."""
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    home = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    return Path(given) if given else Path(home) / "authplane"


class LastGood:
    """The last good versions of one folder."""

    def __init__(self, state_dir: Path, folder: Path) -> None:
        self._place = state_dir / "last-good"
        self._folder = os.fsencode(os.path.realpath(folder)).decode(errors="backslashreplace")
        name = hashlib.sha256(self._folder.encode()).hexdigest()[:_DIGITS]
        self._file = self._place / f"{name}.db"
        self._usable = True

    def read(self) -> Versions | None:
        """Return what was kept; None if there is nothing that can be believed, which is said if there is something."""
        try:
            if not self._file.exists():
                return None
            self._require_private()
            with self._opened() as database:
                return self._believed(database)
        except (OSError, sqlite3.Error, ValueError) as error:
            _log.warning("ignored the last good versions on disk", state=str(self._file), why=_why(error))
            if not isinstance(error, OSError):
                with suppress(OSError):
                    self._file.unlink()
            return None

    def write(self, versions: Versions, gone: Iterable[str] = (), *, everything: bool = False) -> bool:
        """Keep versions and forget those of files that are gone, all at once or none.

        With ``everything``, all others are forgotten. False means that it failed, which is said once.
        """
        try:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.touch(mode=0o600)
            self._require_private()
            with self._opened() as database:
                database.execute("BEGIN IMMEDIATE")
                self._prepare(database, everything=everything)
                rows = [(path, *_row(each)) for path, each in versions.items()]
                database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", rows)
                database.executemany("DELETE FROM files WHERE path = ?", [(path,) for path in gone])
                database.execute("COMMIT")
        except (OSError, sqlite3.Error, ValueError) as error:
            if self._usable:
                _log.warning("cannot keep last good versions on disk", state=str(self._file), why=_why(error))
            self._usable = False
            return False
        self._usable = True
        return True

    @contextmanager
    def _opened(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, timeout=_WAIT, isolation_level=None)) as database:
            yield database

    def _require_private(self) -> None:
        for path, kind in ((self._place, stat.S_ISDIR), (self._file, stat.S_ISREG)):
            found = path.lstat()
            if not kind(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise PermissionError(
                    f"{path} is not private: it must be of this user, with mode 0700, or 0600 for files"
                )

    def _believed(self, database: sqlite3.Connection) -> Versions | None:
        [version] = database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            return None
        if version != FORMAT:
            raise ValueError(f"it has format {version}, this program writes {FORMAT}")
        folders = database.execute("SELECT folder FROM installation").fetchall()
        if folders != [(self._folder,)]:
            raise ValueError("it belongs to another installation")
        found: dict[str, Pieces | None] = {}
        for path, digest, content in database.execute("SELECT path, hash, content FROM files"):
            found[path] = _pieces(path, digest, content)
        return found

    def _prepare(self, database: sqlite3.Connection, *, everything: bool) -> None:
        [version] = database.execute("PRAGMA user_version").fetchone()
        if version == FORMAT and not everything:
            return
        for table in ("installation", "files"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _SCHEMA.strip().splitlines():
            database.execute(statement)
        database.execute("INSERT INTO installation VALUES (?)", (self._folder,))
        database.execute(f"PRAGMA user_version = {FORMAT}")


def _row(version: Pieces | None) -> tuple[bytes, bytes | None]:
    content = None if version is None else json.dumps(version).encode()
    return hashlib.sha256(content or b"").digest(), content


def _pieces(path: object, digest: object, content: object) -> Pieces | None:
    if content is not None and not isinstance(content, bytes):
        raise ValueError(f"what it holds of {path} is damaged")
    if not isinstance(path, str) or hashlib.sha256(content or b"").digest() != digest:
        raise ValueError(f"what it holds of {path} is damaged")
    return None if content is None else tuple((int(line), str(text)) for line, text in json.loads(content))


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
