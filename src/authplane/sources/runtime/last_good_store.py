"""The last good versions of a folder's files, kept on disk for the next start.

Each folder has one database, shared by all processes that read the folder. It contains the content of files, including
keys and passwords, so only its owner may read it. Since it decides what is in force, a database that others could have
written is not used.
"""

import hashlib
import json
import os
import sqlite3
import stat
import tempfile
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

FORMAT: Final = 2
"""The version of what is written here; another is not read."""
_WAIT: Final = 2.0
"""Seconds to wait for another process that writes."""
_DIGITS: Final = 16

Pieces: TypeAlias = tuple[tuple[int, str], ...]
"""The documents of a file, each with the number of lines before it."""
Versions: TypeAlias = Mapping[str, Pieces | None]
"""By the path below the folder; None means that no version of the file was ever good."""

Policies: TypeAlias = Mapping[str, str]
"""The texts, by name, of policies that are in force and in no file any more."""


class State(NamedTuple):
    """What is kept."""

    files: Versions
    policies: Policies


class Gone(NamedTuple):
    """What is kept no more."""

    files: Collection[str] = ()
    policies: Collection[str] = ()


_SCHEMA: Final = """
CREATE TABLE installation (folder TEXT NOT NULL);
CREATE TABLE kept (sort TEXT, name TEXT, hash BLOB, content BLOB, PRIMARY KEY (sort, name)) WITHOUT ROWID;
"""


def default_state_dir() -> Path:
    """Return the default folder for state: as systemd says, or as desktops do.

    A user without a home, as containers have, gets a place that lasts as long as the machine runs.
    """
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    try:
        home = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    except RuntimeError:
        with suppress(FileNotFoundError):  # nothing can be written anywhere; the first write reports it
            return Path(tempfile.gettempdir()) / f"authplane-state-{os.getuid()}"
        return Path("/var/lib/authplane")
    return home / "authplane"


class LastGood:
    """The last good versions of one folder."""

    def __init__(self, state_dir: Path, folder: Path, patience: float = 10.0) -> None:
        self._patience = patience
        """Seconds that who starts waits for another process: without an answer it has nothing to begin with."""
        self._place = state_dir / "last-good"
        # The path as it is given: a link that is turned to another release leads to the same installation.
        self._folder = os.fsencode(os.path.abspath(folder)).decode(errors="backslashreplace")  # noqa: PTH100
        name = hashlib.sha256(self._folder.encode()).hexdigest()[:_DIGITS]
        self._file = self._place / f"{name}.db"
        self._usable = True

    def read(self) -> State | None:
        """Return what was kept; None if there is nothing trustworthy, which is reported if there is something."""
        try:
            if not self._file.exists():
                return None
            self._require_private()
            with self._opened(self._patience) as database:
                return self._believed(database)
        except (OSError, sqlite3.Error, ValueError) as error:
            _warn("ignored the last good versions on disk", state=str(self._file), why=_why(error))
            # One that others use at the moment, or that the disk does not give, is not damaged.
            if not isinstance(error, OSError | sqlite3.OperationalError):
                with suppress(OSError):
                    self._file.unlink()
            return None

    def write(self, state: State, gone: Gone, *, everything: bool) -> bool:
        """Store versions and delete those that are gone, all at once or none; False means that it failed.

        With ``everything``, all others are deleted, and a failure is reported once. Without it, the call fails if the
        others are not there any more.
        """
        try:
            if not everything and not self._file.exists():
                return False
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file.touch(mode=0o600)
            self._require_private()
            with self._opened(_WAIT) as database:
                database.execute("BEGIN IMMEDIATE")
                if everything:
                    self._begin(database)
                else:
                    self._require_ours(database)
                _put(database, "file", {path: _content(each) for path, each in state.files.items()}, gone.files)
                _put(database, "policy", {name: each.encode() for name, each in state.policies.items()}, gone.policies)
                database.execute("COMMIT")
        except (OSError, sqlite3.Error, ValueError) as error:
            if self._usable and everything:
                _warn("cannot keep last good versions on disk", state=str(self._file), why=_why(error))
            self._usable = not everything
            return False
        self._usable = True
        return True

    @contextmanager
    def _opened(self, wait: float) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, timeout=wait, isolation_level=None)) as database:
            yield database

    def _require_private(self) -> None:
        for path, kind in ((self._place, stat.S_ISDIR), (self._file, stat.S_ISREG)):
            found = path.lstat()
            if not kind(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise PermissionError(
                    f"{path} is not private. Set its owner to this user and its mode to 0700, or 0600 for a file."
                )

    def _believed(self, database: sqlite3.Connection) -> State | None:
        if database.execute("PRAGMA user_version").fetchone() == (0,):
            return None
        self._require_ours(database)
        files = {path: _pieces(content) for path, content in _rows(database, "file")}
        policies = {name: (content or b"").decode() for name, content in _rows(database, "policy")}
        return State(files, policies)

    def _require_ours(self, database: sqlite3.Connection) -> None:
        [version] = database.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            raise ValueError(f"it has format {version}, and this program uses {FORMAT}")
        folders = database.execute("SELECT folder FROM installation").fetchall()
        if folders != [(self._folder,)]:
            raise ValueError("it belongs to another installation")

    def _begin(self, database: sqlite3.Connection) -> None:
        for table in ("installation", "files", "kept"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _SCHEMA.strip().splitlines():
            database.execute(statement)
        database.execute("INSERT INTO installation VALUES (?)", (self._folder,))
        database.execute(f"PRAGMA user_version = {FORMAT}")


def _put(database: sqlite3.Connection, sort: str, rows: Mapping[str, bytes | None], gone: Collection[str]) -> None:
    hashed = [(sort, name, hashlib.sha256(content or b"").digest(), content) for name, content in rows.items()]
    database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)", hashed)
    database.executemany("DELETE FROM kept WHERE sort = ? AND name = ?", [(sort, name) for name in gone])


def _rows(database: sqlite3.Connection, sort: str) -> Iterator[tuple[str, bytes | None]]:
    for name, digest, content in database.execute("SELECT name, hash, content FROM kept WHERE sort = ?", (sort,)):
        text = isinstance(name, str) and (content is None or isinstance(content, bytes))
        if not text or hashlib.sha256(content or b"").digest() != digest:
            raise ValueError(f"its entry for {name} is damaged")
        yield name, content


def _content(version: Pieces | None) -> bytes | None:
    return None if version is None else json.dumps(version).encode()


def _pieces(content: bytes | None) -> Pieces | None:
    return None if content is None else tuple((int(line), str(text)) for line, text in json.loads(content))


def _why(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _warn(event: str, **values: str) -> None:
    import structlog  # noqa: PLC0415 (most commands write no log, and loading it takes a tenth of a second)

    structlog.stdlib.get_logger().warning(event, **values)
