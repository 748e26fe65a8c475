"""Names of headers."""

import re
from typing import Final

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def is_header_name(text: str) -> bool:
    """Tell whether a text is what HTTP takes for the name of a header (RFC 9110, 5.6.2)."""
    return _TOKEN.fullmatch(text) is not None


def canonical_header(name: str) -> str:
    """Write a name as Go does, and so Contour in its messages: ``Content-Type``."""
    return "-".join(part.capitalize() for part in name.split("-"))
