"""IP addresses as people write them."""

from ipaddress import IPv4Address, IPv6Address, ip_address


def parse_ip_address(text: str) -> IPv4Address | IPv6Address | None:
    """Read an IP address; None if the text is none."""
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a host: by its address, or as ``localhost``."""
    address = parse_ip_address(host)
    return host == "localhost" if address is None else address.is_loopback
