"""Networks that addresses can be in."""

from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Final, TypeAlias

from authplane.core.addresses import parse_ip_address

Network: TypeAlias = IPv4Network | IPv6Network

_MAPPED: Final = 96
"""The bits that addresses of IPv4 have in common as a part of IPv6."""


def network_of(prefix: str, length: int) -> Network | None:
    """Return a network; None if its prefix is no address.

    The length is cut to what an address has, and bits beyond it do not count. A network of IPv4 that is written as a
    part of IPv6 is one of IPv4, as are the addresses that it is compared with.
    """
    address = parse_ip_address(prefix)
    if address is None:
        return None
    length = min(length, address.max_prefixlen)
    if isinstance(address, IPv4Address):
        return IPv4Network((int(address), length), strict=False)
    if address.ipv4_mapped is not None and length >= _MAPPED:
        return IPv4Network((int(address.ipv4_mapped), length - _MAPPED), strict=False)
    return IPv6Network((int(address), length), strict=False)
