"""Certificate files of workers, made from those of the user."""

import asyncio
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from authplane.authserver.fronts.runtime.pyvoy.pyvoy_config import render_secrets
from authplane.runtime.servers.listen import ServerTls, TlsPaths, TlsUnusableError, read_server_tls

_LOOK: Final = 1.0
"""How often certificate files are looked at, in seconds."""

_log: Final = structlog.stdlib.get_logger()

_Stamp: TypeAlias = tuple[tuple[int, int, int, int] | None, ...]


class Certificates:
    """Files in a folder of ours that are replaced whole when the user's files change."""

    def __init__(self, given: TlsPaths, folder: Path) -> None:
        self._given = given
        self._folder = folder
        self._stamp = self._stat()
        tls = read_server_tls(certificate=given.certificate, key=given.key, ca=given.ca)
        if tls is None:
            raise TlsUnusableError(
                "TLS needs a certificate and its private key. Set --tls-cert-path and --tls-key-path."
            )
        self._current = tls
        self._told = ""
        self.files: Mapping[str, Path] = {name: folder / f"{name}.json" for name in render_secrets(tls)}
        try:
            self._write(tls)
        except OSError as error:
            raise TlsUnusableError(
                f"Cannot write the certificate for the workers: {error}. Set TMPDIR to a folder that this user can"
                " write to."
            ) from error

    async def follow(self, *, look: float = _LOOK) -> None:
        """Take over what changes, for ever."""
        while True:
            await asyncio.sleep(look)
            self.scan()

    def scan(self) -> None:
        """Apply a changed certificate. An invalid one is logged once and retried; the last good one stays in use."""
        stamp = self._stat()
        if stamp == self._stamp:
            return
        given = self._given
        try:
            tls = read_server_tls(certificate=given.certificate, key=given.key, ca=given.ca)
            if tls is not None and tls != self._current:
                self._write(tls)
                self._current = tls
                _log.info("replaced the certificate", path=given.certificate)
        except (TlsUnusableError, OSError) as error:
            why = str(error)
            if why != self._told:
                _log.error("rejected the new certificate; the last one stays in use", why=why)
            self._told = why
            return
        self._stamp, self._told = stamp, ""

    def restore(self) -> None:
        """Write the files again if they were removed; raises OSError."""
        if not all(file.exists() for file in self.files.values()):
            self._write(self._current)

    def _write(self, tls: ServerTls) -> None:
        found = self._folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            # Our folder was removed, and another user waits for a key under its name.
            raise PermissionError(f"another user owns the folder {self._folder} now")
        # Envoy sees a file that is moved into place, not one that is written.
        for name, text in render_secrets(tls).items():
            draft = self._folder / f"{name}.new"
            draft.touch(mode=0o600)
            draft.write_text(text, encoding="ascii")
            draft.replace(self.files[name])

    def _stat(self) -> _Stamp:
        return tuple(_stamp(path) for path in (self._given.certificate, self._given.key, self._given.ca) if path)


def _stamp(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
