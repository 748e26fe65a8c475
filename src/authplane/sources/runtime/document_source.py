"""Where documents come from: a folder or a cluster."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from authplane.sources.document_versions import Library
from authplane.sources.runtime.read_folder import Folder, Progress
from authplane.sources.runtime.watch import rebuilds


class DocumentSource(Protocol):
    """Reads documents and follows their changes."""

    @property
    def root(self) -> Path:
        """The folder, or a path that names the cluster and the part of it that is read."""

    @property
    def library(self) -> Library:
        """What is in force."""

    def reading(self, progress: Progress) -> AbstractAsyncContextManager[None]:
        """Read everything once, then enter the block; while it runs, `changes` yields."""

    def changes(self, *, poll: bool) -> AsyncGenerator[float]:
        """Yield once for each burst of changes, when the library has them: when the burst began."""


class FolderSource:
    """A folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    @property
    def root(self) -> Path:
        """The folder."""
        return self._folder.root

    @property
    def library(self) -> Library:
        """What is in force."""
        return self._folder.library

    @asynccontextmanager
    async def reading(self, progress: Progress) -> AsyncGenerator[None]:
        """Read the folder; raises `FolderError` if there is none."""
        self._folder.scan(progress=progress)
        await self._folder.quiet()
        yield

    def changes(self, *, poll: bool) -> AsyncGenerator[float]:
        """Watch the folder."""
        return rebuilds(self._folder, poll=poll)


def as_source(given: Folder | DocumentSource) -> DocumentSource:
    """Return a folder as a source."""
    return FolderSource(given) if isinstance(given, Folder) else given
