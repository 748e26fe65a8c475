"""Whom admin pages answer, by the host that a request names.

A web page of anybody can let its own name lead to 127.0.0.1 and then read what a browser gets from there (DNS
rebinding). The browser still names the page's host, so a server that knows its own names does not answer.
"""

import re
from collections.abc import Collection
from typing import Final

from authplane.core.addresses import is_loopback, parse_ip_address
from authplane.core.values import dataclass
from authplane.runtime.servers.listen import Address, UnixAddress

# RFC 9110 §7.2: Host = uri-host [ ":" port ]
_HOST: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{0,5})?")
_EVERYWHERE: Final = frozenset({"", "0", "0.0.0.0", "::"})  # noqa: S104 (compared, not listened on)


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """The hosts by which a server of ours is asked."""

    address: Address
    """Where it listens."""
    names: Collection[str] = ()
    """Other names of it, as the operator says."""

    def knows(self, written: str) -> bool:
        """Tell whether a Host header names this machine, the server's own address, or one of its names.

        No web page can be at a unix socket. A server that listens everywhere is asked by any address of its machine,
        which it does not know; an address is no name that somebody else could let lead here.
        """
        if isinstance(self.address, UnixAddress):
            return True
        read = _HOST.fullmatch(written)
        if read is None:
            return False
        host = _plain(read["host"])
        if is_loopback(host) or host in {_plain(name) for name in (self.address.host, *self.names) if name}:
            return True
        return self.address.host in _EVERYWHERE and parse_ip_address(host) is not None


def _plain(host: str) -> str:
    """Return a host without brackets, a final dot and capitals, and an address in its usual form."""
    bare = host.strip("[]").removesuffix(".").lower()
    address = parse_ip_address(bare)
    return bare if address is None else str(address)
