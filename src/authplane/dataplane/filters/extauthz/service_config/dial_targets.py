"""Targets of channels: which of them a resolver knows."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from authplane.core.addresses import parse_ip_address

_HOST_PORT: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:\[\]/?#]+)(?::(?P<port>[0-9]{1,5}|[a-z][a-z0-9-]*))?")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


def target_fault(target: str) -> str:
    """Say why no resolver takes a target; nothing if one does."""
    if not target:
        return "is empty"
    if not target.isascii() or not target.isprintable() or " " in target:
        return "has characters that are not allowed in a target"
    scheme, rest = _split(target)
    check = _SCHEMES.get(scheme)
    if check is not None:
        return check(rest)
    # As gRPC does it: what begins with no known scheme is a name for DNS, such as localhost:8080.
    return f"has the scheme '{scheme}', which is unknown" if "://" in target else _name_fault(target)


def _split(target: str) -> tuple[str, str]:
    found = _SCHEME.fullmatch(target)
    return (found[1].lower(), found[2]) if found else ("", target)


def _path(rest: str) -> str:
    """Return the path of a URI without its first slash; an authority, such as that of a DNS server, is skipped."""
    if rest.startswith("//"):
        rest = rest[2:].partition("/")[2]
    return rest.removeprefix("/")


def _dns_fault(rest: str) -> str:
    return _name_fault(_path(rest))


def _name_fault(name: str) -> str:
    found = _HOST_PORT.fullmatch(name)
    if found is None:
        return "does not name a host as host or host:port"
    port = found["port"]
    return "has a port that is not from 1 to 65535" if port and port.isdigit() and not 0 < int(port) < 65536 else ""


def _addresses_fault(version: int) -> Callable[[str], str]:
    def fault(rest: str) -> str:
        for each in _path(rest).split(","):
            found = _HOST_PORT.fullmatch(each)
            address = None if found is None else parse_ip_address(found["host"].strip("[]"))
            if found is None or address is None or address.version != version:
                return f"is not a list of IPv{version} addresses with ports"
            if _name_fault(each):
                return _name_fault(each)
        return ""

    return fault


def _some_path_fault(rest: str) -> str:
    return "" if _path(rest) else "has no path"


def _socket_fault(rest: str) -> str:
    return "" if rest.removeprefix("//") else "does not name a socket"


_SCHEMES: Final[Mapping[str, Callable[[str], str]]] = {
    "dns": _dns_fault,
    "ipv4": _addresses_fault(4),
    "ipv6": _addresses_fault(6),
    "unix": _socket_fault,
    "unix-abstract": _socket_fault,
    "vsock": _some_path_fault,
    "xds": _some_path_fault,
    "google-c2p": _some_path_fault,
}
