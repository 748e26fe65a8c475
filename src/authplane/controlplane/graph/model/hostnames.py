"""Host names of listeners and routes: one name, ``*.`` and what names end with, or ``*`` for all."""

import re
from collections.abc import Iterable
from typing import Final

from authplane.core.addresses import parse_ip_address

ANY: Final = "*"
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAME: Final = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")


def hostname_problem(name: str) -> str:
    """Say why this is not a host name that a listener or a route may have, or nothing."""
    if parse_ip_address(name) is not None:
        return "is an IP address. Use a DNS name."
    return "" if is_dns_name(name) else "is not a DNS name. Use one such as 'a.example' or '*.example'."


def is_dns_name(name: str) -> bool:
    """Tell whether this is a name in lower case, or ``*.`` and one."""
    return len(name) <= 253 and _NAME.fullmatch(name) is not None


def covers(pattern: str, name: str) -> bool:
    """Tell whether ``pattern`` matches everything that ``name`` matches."""
    return pattern in {ANY, name} or (pattern.startswith("*.") and name.endswith(pattern[1:]))


def common_name(one: str, other: str) -> str | None:
    """Return the intersection of two patterns, which is always one of them; None if it is empty."""
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def closest(patterns: Iterable[str], name: str) -> str | None:
    """Return the narrowest of the patterns that cover a name."""
    return min((each for each in patterns if covers(each, name)), key=breadth, default=None)


def breadth(pattern: str) -> tuple[bool, int]:
    """Sort the narrow before the wide: names, then the longer patterns."""
    return (pattern.startswith(ANY), -len(pattern))
