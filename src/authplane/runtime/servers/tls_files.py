"""Certificate files that may be renewed while a server runs."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from authplane.core.values import dataclass
from authplane.runtime.servers.listen import ServerTls, TlsUnusableError, read_server_tls

_log: Final = structlog.stdlib.get_logger()

Tell: TypeAlias = Callable[[int, str], None]
"""Takes a log level and a message."""
_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


def _tell_log(level: int, sentence: str) -> None:
    _log.log(level, sentence)


@dataclass(slots=True)
class TlsFiles:
    """The current TLS of a server. Unusable files leave the last good version in force.

    gRPC calls this at each handshake, from its own threads. Two concurrent reads do no harm.
    """

    certificate: str
    key: str
    ca: str
    current: ServerTls
    """What is in force."""
    _stamp: _Stamp
    _tell: Tell

    @classmethod
    def open(cls, *, certificate: str, key: str, ca: str = "", tell: Tell = _tell_log) -> "TlsFiles | None":
        """Read PEM files. Returns None if all paths are empty; raises `TlsUnusableError` for unusable files.

        ``tell`` gets a message for each later change; by default it goes to the log.
        """
        stamp = _stamp_of(certificate, key, ca)
        current = read_server_tls(certificate=certificate, key=key, ca=ca)
        return None if current is None else cls(certificate, key, ca, current, stamp, tell)

    @property
    def client_ca(self) -> bytes | None:
        """The CA of client certificates; None if clients need no certificate."""
        return self.current.client_ca

    def renewed(self) -> ServerTls | None:
        """Return the content of the files if it is new and usable."""
        stamp = _stamp_of(self.certificate, self.key, self.ca)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            found = read_server_tls(certificate=self.certificate, key=self.key, ca=self.ca)
        except TlsUnusableError as error:
            # For instance, the certificate is new and the key is not yet. The next handshake reads both.
            self._tell(
                logging.WARNING,
                f"rejected changed TLS files; the last good version stays in force: {error}",
            )
            return None
        if found is None or found == self.current:
            return None
        self.current = found
        self._tell(logging.INFO, f"loaded changed TLS files: {self.certificate}")
        return found


def _stamp_of(*paths: str) -> _Stamp:
    return tuple(_one_stamp(Path(path)) if path else None for path in paths)


def _one_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
