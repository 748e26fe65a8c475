"""IP addresses as people write them."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_LAST_BITS: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))
"""Where the last 32 bits are an IPv4 address: NAT64 (RFC 6052 and 8215), and IPv4-compatible addresses of old."""


def parse_ip_address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an IP address; None if the text is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def meant_by(address: IPv4Address | IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that an IPv6 address embeds, in every known notation."""
    if isinstance(address, IPv4Address):
        return ()
    last = IPv4Address(int(address) & 0xFFFFFFFF) if any(address in each for each in _LAST_BITS) else None
    meant = (address.ipv4_mapped, address.sixtofour, *(address.teredo or ()), last)
    return tuple(each for each in meant if each is not None)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host: by its address, or as ``localhost``."""
    address = parse_ip_address(host)
    return host == "localhost" if address is None else address.is_loopback
