"""Keeps requests whose target others choose away from machines that only we can reach."""

from collections.abc import Iterable
from ipaddress import ip_address

import httpcore2

from authplane.core.addresses import meant_by


class PrivateAddressError(httpcore2.ConnectError):
    """The connection led to an address that is not on the public internet."""


def is_public(address: str) -> bool:
    """Tell whether a text is an IP address of the public internet.

    An address that embeds another one, such as an IPv4-mapped IPv6 address, counts as the embedded one.
    """
    try:
        # A scope, as in fe80::1%eth0, is only for addresses of a local network.
        parsed = ip_address(address)
    except ValueError:
        return False
    return all(each.is_global and not each.is_multicast for each in (parsed, *meant_by(parsed)))


class PublicNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to the public internet only.

    The actual address of the connection counts, not an earlier lookup of the name, which can resolve to something else
    a moment later. Nothing is sent before the address is checked.
    """

    def __init__(self) -> None:
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the interface is the library's)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect; raises `PrivateAddressError` if the address is not public."""
        stream = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        peer = stream.get_extra_info("server_addr")
        if not isinstance(peer, tuple) or not is_public(str(peer[0])):
            await stream.aclose()
            raise PrivateAddressError("the address is private")
        return stream
