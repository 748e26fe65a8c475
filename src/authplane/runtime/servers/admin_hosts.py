"""Which Host headers admin pages accept.

A malicious web page can point its own DNS name at 127.0.0.1 and read what the browser gets from there (DNS rebinding).
The browser still sends the page's host name. So the server rejects requests with a host name that is not its own.
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
    """The Host headers that a server accepts."""

    address: Address
    """The address that it listens on."""
    names: Collection[str] = ()
    """Further names, set by the operator."""

    def knows(self, written: str) -> bool:
        """Tell whether a Host header names this machine, the server's own address, or one of its names.

        Browsers cannot reach a unix socket. A server on all interfaces accepts any IP address: it does not know
        those of its machine, and DNS rebinding needs a name.
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
