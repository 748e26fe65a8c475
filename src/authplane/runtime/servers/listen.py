"""How a server listens: its address, and its TLS if it has any.

ListenError
├── AddressInvalidError
├── AddressTakenError
└── TlsUnusableError
"""

import errno
import os
import socket
import ssl
from pathlib import Path
from typing import Final, TypeAlias, assert_never

from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.runtime.servers.port_holder import find_port_holder

_LONGEST_PATH: Final = 107
"""Maximum length of the path of a unix socket, in bytes."""
_LISTENS: Final = "listens there"


class ListenError(Exception):
    """A server cannot start. The message says why and what to do."""


class AddressInvalidError(ListenError):
    """The text is not an address."""


class AddressTakenError(ListenError):
    """Another program listens there, or this one may not."""

    def __init__(self, address: "Address", why: str, remedy: str = "") -> None:
        self.why = why
        self.busy = why.endswith(_LISTENS)
        """Whether another program listens there."""
        stop = "Stop that program, or choose" if self.busy else "Choose"
        self.fact = f"Cannot listen on {address}: {why}"
        """The message without its remedy, for callers that know a better one."""
        super().__init__(f"{self.fact}. {remedy or f'{stop} another address.'}")


class TlsUnusableError(ListenError):
    """The certificate, the key or the CA cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpAddress:
    """A host and a port. An empty host means every interface, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnixAddress:
    """A unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address: TypeAlias = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """Read ``host:port``, ``:port``, ``[::1]:port`` or ``unix:/path``; raises `AddressInvalidError`."""
    if text.startswith("unix:"):
        return _unix(text)
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    valid = (
        colon
        and port.isascii()
        and port.isdigit()
        and len(port) <= 5
        and int(port) <= 65535
        and (bare != host or ":" not in host)
    )
    if not valid or any(character.isspace() for character in host):
        raise AddressInvalidError(
            f"{text!r} is not an address. Use an address such as 127.0.0.1:9090, :9090 or unix:/run/authz.sock."
        )
    return TcpAddress(host=bare, port=int(port))


def claim(address: Address) -> None:
    """Check that ``address`` is free; raises `AddressTakenError` with the reason.

    gRPC servers replace an existing unix socket even if another server listens on it. This check prevents that.
    """
    match address:
        case TcpAddress(port=0):
            return
        case TcpAddress():
            _claim_port(address)
        case UnixAddress():
            _claim_path(address)
        case _:
            assert_never(address)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """The certificate of a server, and which clients it accepts."""

    certificate: bytes
    key: Secret[bytes]
    client_ca: bytes | None = None
    """If set, clients need a certificate that this CA signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsPaths:
    """PEM files of a server. An empty path means no file."""

    certificate: str = ""
    key: str = ""
    ca: str = ""
    """If set, clients need a certificate that this CA signed."""

    def __bool__(self) -> bool:
        return bool(self.certificate or self.key or self.ca)


def read_server_tls(*, certificate: str, key: str, ca: str = "") -> ServerTls | None:
    """Read PEM files. Returns None if all paths are empty; raises `TlsUnusableError` for unusable files."""
    if not (certificate or key or ca):
        return None
    if not (certificate and key):
        raise TlsUnusableError("TLS needs a certificate and its private key. Set --tls-cert-path and --tls-key-path.")
    found = ServerTls(certificate=_read(certificate), key=Secret(_read(key)), client_ca=_read(ca) if ca else None)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        raise TlsUnusableError(
            f"{certificate} and {key} are not a certificate and its private key ({error})."
            " Use PEM files that belong together."
        ) from error
    if found.client_ca is not None:
        try:
            context.load_verify_locations(cadata=found.client_ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise TlsUnusableError(f"{ca} has no CA certificate. Use a PEM file.") from error
    return found


def _unix(text: str) -> UnixAddress:
    path = text.removeprefix("unix:").removeprefix("//")
    if not path or "\0" in path:
        raise AddressInvalidError(f"{text!r} has no path. Use unix:/run/authz.sock.")
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise AddressInvalidError(f"The path of {text!r} is longer than {_LONGEST_PATH} bytes. Use a shorter path.")
    return UnixAddress(path=path)


def _claim_port(address: TcpAddress) -> None:
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise AddressInvalidError(
            f"{address.host!r} is not an address of this machine. Use an address or a name of this machine."
        ) from error
    for family, kind, protocol, _, where in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(where)
                probe.listen(1)
        except OSError as error:
            # An empty host means the interfaces of this machine, which may have no IPv6.
            if address.host or error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
                raise _taken(address, error) from error


def _claim_path(address: UnixAddress) -> None:
    path = Path(address.path)
    if not path.parent.is_dir():
        raise AddressInvalidError(
            f"Cannot listen on {address}: the folder {path.parent} does not exist. Create it, or choose another path."
        )
    if not path.exists():
        return
    if not path.is_socket():
        raise AddressTakenError(address, "the path exists and is not a socket", "Choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(address.path)
        except ConnectionRefusedError:
            return
        except OSError as error:
            raise _taken(address, error) from error
    raise AddressTakenError(address, f"another program {_LISTENS}")


def _taken(address: Address, error: OSError) -> AddressTakenError:
    if error.errno != errno.EADDRINUSE:
        return AddressTakenError(address, os.strerror(error.errno or 0))
    holder = find_port_holder(address.port) if isinstance(address, TcpAddress) else None
    return AddressTakenError(address, f"{holder or 'another program'} {_LISTENS}")


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TlsUnusableError(f"Cannot read {path}: {error.strerror}. Use a file that this user can read.") from error
