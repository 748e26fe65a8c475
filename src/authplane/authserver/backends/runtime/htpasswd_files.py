"""Keeps the users of password files and of Secrets in a folder up to date.

A file that cannot be read, is empty, ends in the middle of a line or has no valid line is unfinished or broken: its
last good version stays in force, and the problem is reported. A file with a duplicate user or with too many users is
never used either. To remove every user of a file, leave a comment in it.
"""

import asyncio
import os
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import astuple
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from authplane.authserver.backends.htpasswd.htpasswd import Htpasswd
from authplane.authserver.backends.htpasswd.user_realms import Declared, Realms, build_realms
from authplane.authserver.backends.htpasswd.user_secrets import (
    ALL_SECRETS,
    SecretFilter,
    SecretProblem,
    parse_user_secrets,
)
from authplane.authserver.backends.htpasswd.users import ParsedUsers, parse_users
from authplane.core.names import Ref
from authplane.core.problems import Problem, Severity
from authplane.core.values import dataclass
from authplane.resources.documents import Finding, Place
from authplane.resources.loaded_resources import Loaded
from authplane.sources.runtime.read_folder import Folder
from authplane.sources.runtime.watch import rebuilds

LARGEST_FILE: Final = 16 * 2**20
"""A larger file is not read, in bytes."""
LOOK: Final = 0.25
"""Seconds between two scans of the files: they are few, and scanning detects every kind of replacement."""
_MOST_SAID: Final = 50
"""Maximum number of problems that are logged at a time, errors first."""
_SETTLES: Final = 1_000_000_000
"""A file that was written so many nanoseconds ago may be written again without looking different."""

_Stamp: TypeAlias = tuple[int, int, int, int, int, int]
"""Distinguishes states of a file; the last part is the time of its last change."""
_log: Final = structlog.stdlib.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordFile:
    """A file of users."""

    path: Path
    realm: str | None = None
    """None means every realm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserState:
    """The users in force, and what is wrong."""

    realms: Realms
    findings: tuple[Finding, ...] = ()
    stale: frozenset[str] = frozenset()
    """Files whose content is not in force: not everything is ready."""


class PasswordFiles:
    """A session over password files: `scan` them, then read what they declare."""

    def __init__(self, files: Sequence[PasswordFile], *, strict: bool = False) -> None:
        self._files = tuple(_File(file, strict=strict) for file in files)

    def scan(self) -> bool:
        """Read what may have changed; tell whether users or findings did."""
        changed = False
        for file in self._files:
            changed = file.scan() or changed
        return changed

    def declared(self) -> tuple[Declared, ...]:
        """Return the users in force; a file that was never good declares nothing."""
        return tuple(file.declared for file in self._files if file.declared is not None)

    def missing(self) -> frozenset[str | None]:
        """Return the realms of files that were never good."""
        return frozenset(file.file.realm for file in self._files if file.declared is None)

    def findings(self) -> tuple[Finding, ...]:
        """Return the problems of the files, in their order."""
        return tuple(finding for file in self._files for finding in file.findings)

    def stale(self) -> frozenset[str]:
        """Return the files whose last good version is in force, or nothing at all."""
        return frozenset(file.origin for file in self._files if file.stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSources:
    """Where users come from."""

    default_realm: str
    files: PasswordFiles
    folder: Folder | None = None
    wanted: SecretFilter = ALL_SECRETS

    def state(self) -> UserState:
        """Build the realms of everything that was read so far."""
        declared, findings = self.files.declared(), self.files.findings()
        loaded = self.folder.library.current() if self.folder is not None else Loaded()
        held, problems = parse_user_secrets(loaded.resources.secrets.values(), self.wanted)
        missing = frozenset(realm or self.default_realm for realm in self.files.missing())
        realms, conflicts = build_realms((*declared, *held), default=self.default_realm, pending=missing)
        refs = {str(ref): ref for ref in (Ref("Secret", *astuple(name)) for name in loaded.resources.secrets)}
        of_secrets = [
            *problems,
            *(SecretProblem(refs[origin], problem) for origin, problem in conflicts if origin in refs),
        ]
        return UserState(
            realms=realms,
            findings=(
                *findings,
                *(Finding(Place(origin, 0, 0), None, problem) for origin, problem in conflicts if origin not in refs),
                *(Finding(loaded.place(ref, problem.path), ref, problem) for ref, problem in of_secrets),
            ),
            stale=self.files.stale(),
        )


async def keep_users(
    backend: Htpasswd,
    sources: UserSources,
    told: Callable[[UserState], None] = lambda _: None,
    *,
    look: float = LOOK,
    poll: bool = False,
) -> None:
    """Publish the users to the backend, now and after each change, for ever; ``told`` receives what is in force.

    The caller must have scanned the folder; later changes are read with the folder's next change.
    """
    news = asyncio.Event()
    sources.files.scan()
    news.set()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_follow_files(sources.files, news, look))
        if sources.folder is not None:
            tasks.create_task(_follow_folder(sources.folder, news, poll=poll))
        known: frozenset[Finding] = frozenset()
        while True:
            await news.wait()
            news.clear()
            state = sources.state()
            backend.publish(state.realms)
            _log_news(state, known)
            known = frozenset(state.findings)
            told(state)


async def _follow_files(files: PasswordFiles, news: asyncio.Event, look: float) -> None:
    while True:
        await asyncio.sleep(look)
        if files.scan():
            news.set()


async def _follow_folder(folder: Folder, news: asyncio.Event, *, poll: bool) -> None:
    async with aclosing(rebuilds(folder, poll=poll)) as changes:
        async for _ in changes:
            news.set()


def _log_news(state: UserState, known: frozenset[Finding]) -> None:
    news = [finding for finding in state.findings if finding not in known]
    # Only some of the problems of a long file are logged: checks wait meanwhile.
    for finding in sorted(news, key=lambda each: each.problem.severity is not Severity.ERROR)[:_MOST_SAID]:
        say = _log.error if finding.problem.severity is Severity.ERROR else _log.warning
        say("found a problem with users", where=str(finding.place), problem=str(finding.problem))
    if len(news) > _MOST_SAID:
        _log.warning("omitted further problems with users", count=len(news) - _MOST_SAID)
    counts = {realm: len(users.users) for realm, users in state.realms.lists.items()}
    _log.info("applied users", realms=counts, stale=sorted(state.stale))


class _File:
    """One file as it was last read, and its last good users."""

    def __init__(self, file: PasswordFile, *, strict: bool) -> None:
        self.file = file
        self.origin = str(file.path)
        self.declared: Declared | None = None
        self.findings: tuple[Finding, ...] = ()
        self.stale = True
        self._strict = strict
        self._looked: _Stamp | None = None
        self._read: _Stamp | None = None
        self._settled = False
        self._begun = False

    def scan(self) -> bool:
        """Read the file if it may have changed; tell whether its users or findings did."""
        stamp = _stamp(self.file.path)
        quiet = stamp == self._looked or not self._begun
        self._looked = stamp
        if self._begun and (not quiet or (stamp == self._read and self._settled)):
            return False
        first, self._begun = not self._begun, True
        self._read = stamp
        self._settled = stamp is not None and time.time_ns() - stamp[-1] > _SETTLES
        before = (self.declared, self.findings, self.stale)
        content = _content(self.file.path)
        if isinstance(content, str):
            self._keep("FileUnreadable", content)
        else:
            self._take(content, first=first)
        return first or (self.declared, self.findings, self.stale) != before

    def _take(self, content: bytes, *, first: bool) -> None:
        parsed = parse_users(content, strict=self._strict)
        fault = _fault(content, parsed)
        spots = tuple(Finding(Place(self.origin, line, column), None, found) for found, line, column in parsed.problems)
        if parsed.refused or (fault and not first and self.declared is not None):
            self._keep("FileRefused" if parsed.refused else "FileIncomplete", parsed.refused or fault)
            self.findings = (*self.findings, *spots)
            return
        self.stale = False
        self.findings = spots
        self.declared = Declared(origin=self.origin, realm=self.file.realm, users=parsed.users)

    def _keep(self, reason: str, why: str) -> None:
        consequence = (
            "the server has no users from this file"
            if self.declared is None
            else "the last good users of the file stay in force"
        )
        remedy = "To remove every user, leave only a comment in the file." if why == _EMPTY else "Correct the file."
        problem = Problem((), reason, f"{why}; {consequence}. {remedy}")
        self.findings = (Finding(Place(self.origin, 0, 0), None, problem),)
        self.stale = True


_EMPTY: Final = "The file is empty"


def _fault(content: bytes, parsed: ParsedUsers) -> str:
    """Say why a file looks as if it were not finished; empty means that it does not."""
    if not content.strip():
        return _EMPTY
    if parsed.cut:
        return "The file ends in the middle of a line"
    return "The file has no valid line" if parsed.problems and not parsed.users else ""


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _content(path: Path) -> bytes | str:
    """Read a regular file, or say why that is not possible; anything else is not waited for."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return "The path is not a regular file"
            with os.fdopen(opened, "rb", closefd=False) as file:
                content = file.read(LARGEST_FILE + 1)
        finally:
            os.close(opened)
    except OSError as error:
        return f"The file cannot be read: {error.strerror}"
    return content if len(content) <= LARGEST_FILE else f"The file is larger than {LARGEST_FILE} bytes"
