"""Certificates in files, which somebody renews while a server runs."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from authplane.core.values import dataclass
from authplane.runtime.servers.listen import ServerTls, TlsUnusableError, read_server_tls

_log: Final = structlog.stdlib.get_logger()

Tell: TypeAlias = Callable[[int, str], None]
"""Takes a level of the log and a sentence."""
_Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


def _tell_log(level: int, sentence: str) -> None:
    _log.log(level, sentence)


@dataclass(slots=True)
class TlsFiles:
    """The TLS of a server, as its files say at the moment; files that cannot be used leave it as it was.

    gRPC asks at each handshake, from threads of its own. Two that ask at once both read, which does no harm.
    """

    certificate: str
    key: str
    ca: str
    current: ServerTls
    """What holds now."""
    _stamp: _Stamp
    _tell: Tell

    @classmethod
    def open(cls, *, certificate: str, key: str, ca: str = "", tell: Tell = _tell_log) -> "TlsFiles | None":
        """Read PEM files; all empty means no TLS, anything else that is not usable raises `TlsUnusableError`.

        What happens to them later is told to the log of our own servers, or where the program says.
        """
        stamp = _stamp_of(certificate, key, ca)
        current = read_server_tls(certificate=certificate, key=key, ca=ca)
        return None if current is None else cls(certificate, key, ca, current, stamp, tell)

    @property
    def client_ca(self) -> bytes | None:
        """Who must have signed a client's certificate."""
        return self.current.client_ca

    def renewed(self) -> ServerTls | None:
        """Return what the files hold if that is new and can be used."""
        stamp = _stamp_of(self.certificate, self.key, self.ca)
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            found = read_server_tls(certificate=self.certificate, key=self.key, ca=self.ca)
        except TlsUnusableError as error:
            # A certificate without its key yet, for instance: the next handshake finds both.
            self._tell(
                logging.WARNING,
                f"the TLS files changed and cannot be used; what was read before stays in force: {error}",
            )
            return None
        if found is None or found == self.current:
            return None
        self.current = found
        self._tell(logging.INFO, f"the TLS files were read again: {self.certificate}")
        return found


def _stamp_of(*paths: str) -> _Stamp:
    return tuple(_one_stamp(Path(path)) if path else None for path in paths)


def _one_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
