"""Where the ADS server listens, and when it needs TLS for that.

AdsError
├── AddressInvalid
├── AddressTaken
└── AddressUnprotected
"""

import asyncio
import ipaddress
import re
from pathlib import Path
from typing import Final

import grpc

_HOST_PORT: Final = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})")
_UNIX: Final = "unix:"
_UNIX_LONGEST: Final = 107
"""Bytes of a socket's path that Linux takes."""


class AdsError(Exception):
    """The ADS server cannot serve; the text says why in one sentence."""


class AddressInvalid(AdsError):  # noqa: N818 - the root of the tree has the suffix
    """The address is none that can be listened on."""


class AddressTaken(AdsError):  # noqa: N818
    """Another server has the address."""


class AddressUnprotected(AdsError):  # noqa: N818
    """Other machines could connect, and nothing would ask them who they are."""


def check_address(address: str, *, protected: bool) -> None:
    """Raise `AdsError` unless one may listen on the address, with client certificates or without."""
    if address.startswith(_UNIX):
        _check_path(address)
        return
    found = _HOST_PORT.fullmatch(address)
    if found is None or int(found["port"]) > 65_535:
        raise AddressInvalid(f"'{address}' is neither host:port nor unix:/path.")
    if not protected and not _loopback(found["v6"] or found["host"]):
        raise AddressUnprotected(f"'{address}' is open to other machines: it needs TLS with client certificates.")


def socket_path(address: str) -> Path | None:
    """Return the path of a Unix socket's address, None for a TCP address."""
    return Path(address.removeprefix(_UNIX)) if address.startswith(_UNIX) else None


async def check_free(path: Path) -> None:
    """Raise `AddressTaken` if a server answers at this path: gRPC would take the path away from it."""
    try:
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError):
        return
    writer.close()
    raise AddressTaken(f"another server has 'unix:{path}'.")


def mutual_tls(*, key: bytes, certificates: bytes, client_authorities: bytes) -> grpc.ServerCredentials:
    """Build credentials from PEM texts; a client must show a certificate of one of the authorities."""
    return grpc.ssl_server_credentials(
        [(key, certificates)], root_certificates=client_authorities, require_client_auth=True
    )


def _check_path(address: str) -> None:
    path = address.removeprefix(_UNIX)
    if not path.startswith("/") or "\0" in path:
        raise AddressInvalid(f"'{address}' needs an absolute path.")
    if len(path.encode()) > _UNIX_LONGEST:
        raise AddressInvalid(f"'{address}' is longer than the {_UNIX_LONGEST} bytes that a socket's path may have.")
    if not Path(path).parent.is_dir():
        raise AddressInvalid(f"'{address}' is in a folder that does not exist.")
    if Path(path).exists() and not Path(path).is_socket():
        raise AddressInvalid(f"'{address}' is a file that is no socket.")


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
