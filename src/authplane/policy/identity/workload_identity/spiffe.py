"""SPIFFE ids: each has one spelling, and they are compared exactly."""

import re
from typing import Final

from authplane.core.values import dataclass

LONGEST_ID: Final = 2048
"""In bytes, and all of them are ASCII."""
LONGEST_TRUST_DOMAIN: Final = 255

_SCHEME: Final = "spiffe://"
_ID: Final = re.compile(r"spiffe://([a-z0-9._-]+)((?:/[A-Za-z0-9._-]+)*)")
_DOTS: Final = frozenset({".", ".."})


@dataclass(frozen=True, slots=True)
class SpiffeId:
    """A well-formed SPIFFE id. Two are the same only if they are the same to the letter."""

    trust_domain: str
    path: str = ""
    """Empty for the trust domain itself, else with a slash before each segment."""

    def __str__(self) -> str:
        return f"{_SCHEME}{self.trust_domain}{self.path}"


@dataclass(frozen=True, slots=True)
class NotSpiffe:
    """Why a text is no SPIFFE id, without quoting it."""

    why: str


def parse_spiffe_id(text: str) -> SpiffeId | NotSpiffe:
    """Read a SPIFFE id; there are no escapes, no empty or dot segments, and no other case of scheme or trust domain."""
    if len(text) > LONGEST_ID:
        return NotSpiffe(f"it is longer than {LONGEST_ID} bytes")
    matched = _ID.fullmatch(text)
    if matched is None:
        return NotSpiffe("it is not spiffe://<trust domain>/<path> of letters, digits, dots, hyphens and underscores")
    domain, path = matched[1], matched[2]
    if len(domain) > LONGEST_TRUST_DOMAIN:
        return NotSpiffe(f"its trust domain is longer than {LONGEST_TRUST_DOMAIN} bytes")
    if not _DOTS.isdisjoint(path.split("/")):
        return NotSpiffe("a path segment is . or ..")
    return SpiffeId(domain, path)


def names_workload(spiffe_id: str) -> bool:
    """Tell whether a well-formed SPIFFE id can be that of a workload: a trust domain alone is none."""
    return "/" in spiffe_id.removeprefix(_SCHEME)
