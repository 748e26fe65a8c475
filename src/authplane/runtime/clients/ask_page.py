"""Asks a program on this machine, or one that it can reach, for one page: over TCP or a unix socket, without TLS."""

import http.client
import socket
from typing import Final, assert_never

from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

_LARGEST: Final = 64 * 1024 * 1024


class NotAnsweredError(Exception):
    """There is no page; the message continues a sentence about who was asked."""


def ask_page(address: Address, target: str, *, limit: float = 5.0) -> bytes:
    """Return the page of a server; raises `NotAnsweredError` if it gives none, or none within some seconds."""
    connection = _connection(address, limit)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        body = response.read(_LARGEST + 1)
    except TimeoutError as error:
        raise NotAnsweredError(f"does not answer within {limit:g} s") from error
    except (OSError, http.client.HTTPException) as error:
        raise NotAnsweredError(f"cannot be asked: {_cause(error)}") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise NotAnsweredError(f"answered {response.status}")
    if len(body) > _LARGEST:
        raise NotAnsweredError(f"answered with more than {_LARGEST} bytes")
    return body


def _connection(address: Address, limit: float) -> http.client.HTTPConnection:
    match address:
        case TcpAddress(host=host, port=port):
            return http.client.HTTPConnection(host or "127.0.0.1", port, timeout=limit)
        case UnixAddress(path=path):
            return _OverSocket(path, limit)
        case _:
            assert_never(address)


class _OverSocket(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, limit: float) -> None:
        super().__init__("authplane", timeout=limit)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _cause(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "it cannot be found"
    return "it does not speak HTTP"
