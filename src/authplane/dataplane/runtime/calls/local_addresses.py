"""Our own address of a connection: grpcio shows it only through channelz, its debugging interface."""

import json
from base64 import b64decode
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, Final
from urllib.parse import unquote

from authplane.core.addresses import parse_ip_address
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.runtime.calls.grpcio_internals import cygrpc

_MOST_KNOWN: Final = 65_536
_PAGE: Final = 500


class LocalAddressUnclearError(Exception):
    """Two connections of one port of a client reach two of our addresses: calls cannot be assigned to one."""


@dataclass(frozen=True, slots=True)
class _Found:
    server: int
    socket: int
    local: Endpoint


class LocalAddresses:
    """Our ends of connections, for a server that is bound to these addresses. Safe to use from several threads."""

    def __init__(self) -> None:
        self._bound: list[Endpoint] = []
        self.only: Endpoint | None = None
        """The address of every connection, where there is no other."""
        self._known: dict[str, _Found] = {}

    def bind(self, address: Endpoint) -> None:
        """Record an address that the server listens on."""
        self._bound.append(address)
        self.only = address if len(self._bound) == 1 and not _is_wildcard(address) else None

    def of(self, peer: str) -> Endpoint:
        """Return our address of the connection to a peer, which is named as grpcio names it.

        Raises `LocalAddressUnclearError`. A server without channelz (``grpc.enable_channelz`` is 0) that is bound to
        any address of its host knows no more than that.
        """
        if self.only is not None:
            return self.only
        known = self._known.get(peer)
        # A port of a client is used again some day: the socket must still be the same.
        if known is not None and _lives(known, peer):
            return known.local
        return self._look_up(peer)

    def _look_up(self, peer: str) -> Endpoint:
        ports = {each.port for each in self._bound}
        found = [each for each in _connections(peer) if each.local.port in ports]
        if len({each.local for each in found}) > 1:
            raise LocalAddressUnclearError
        if not found:
            return self._bound[0] if len(self._bound) == 1 else Endpoint()
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[peer] = found[0]
        return found[0].local


@lru_cache(maxsize=4096)
def parse_peer(peer: str) -> Endpoint:
    """Read how grpcio names a peer: ``ipv4:10.0.0.1:5000``, ``ipv6:%5B::1%5D:5000`` or ``unix:``."""
    scheme, _, rest = peer.partition(":")
    if scheme not in {"ipv4", "ipv6"}:
        return Endpoint(address=rest if scheme == "unix" else "")
    host, _, port = unquote(rest).rpartition(":")
    return Endpoint(address=_plain(host.strip("[]")), port=int(port) if port.isdecimal() else 0)


def parse_bound(address: str, port: int) -> Endpoint:
    """Read an address as servers are given it, with the port that was really taken."""
    if address.startswith("unix:"):
        return Endpoint(address=address.removeprefix("unix:").removeprefix("//"))
    host = address.rpartition(":")[0] if ":" in address else address
    return Endpoint(address=_plain(unquote(host).strip("[]")), port=port)


def _plain(host: str) -> str:
    """Write an IPv4 address as such, also where it came as one of version 6."""
    # A scope, as in fe80::1%eth0, belongs to the machine and not to the address.
    address = parse_ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address or host)


def _is_wildcard(endpoint: Endpoint) -> bool:
    address = parse_ip_address(endpoint.address)
    return endpoint.port != 0 and (address is None or address.is_unspecified)


def _connections(peer: str) -> Iterator[_Found]:
    """Find the connections of all servers of this process to a peer."""
    for server in _server_ids():
        for socket, name in _sockets(server):
            if name == peer:
                local = _local_of(socket)
                if local is not None:
                    yield _Found(server, socket, local)


def _server_ids() -> Iterator[int]:
    start, end = 0, False
    while not end:
        page = _json(cygrpc.channelz_get_servers, start)
        end = page.get("end", True)
        for each in page.get("server", ()):
            start = int(each["ref"]["serverId"]) + 1
            yield start - 1


def _sockets(server: int, start: int = 0, most: int = _PAGE) -> Iterator[tuple[int, str]]:
    """Return the connections of a server: their numbers, and their peers."""
    end = False
    while not end:
        page = _json(cygrpc.channelz_get_server_sockets, server, start, most)
        end = page.get("end", True) or most < _PAGE
        for each in page.get("socketRef", ()):
            start = int(each["socketId"]) + 1
            yield start - 1, each["name"].rpartition(" ")[2]


def _lives(found: _Found, peer: str) -> bool:
    return (found.socket, peer) in _sockets(found.server, found.socket, 1)


def _local_of(socket: int) -> Endpoint | None:
    address = _json(cygrpc.channelz_get_socket, socket).get("socket", {}).get("local", {}).get("tcpipAddress")
    if address is None:
        return None
    return Endpoint(address=_plain(str(ip_address(b64decode(address["ipAddress"])))), port=int(address["port"]))


def _json(ask: Any, *arguments: int) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(ask(*arguments))
    except ValueError:
        # The requested object is gone by now.
        return {}
    return answer
