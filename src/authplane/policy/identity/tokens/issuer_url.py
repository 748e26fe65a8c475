"""Addresses of issuers, as policies write them."""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from authplane.core.addresses import is_loopback
from authplane.core.problems import Problems
from authplane.core.text import shorten
from authplane.core.values import dataclass

INVALID: Final = "InvalidIssuer"
LONGEST: Final = 2048

_PRINTABLE: Final = re.compile(r"[!-~]+")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?|[0-9a-f:.]*:[0-9a-f:.]*")
_REMEDY: Final = "Use an https:// URL without user, query and fragment."


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerUrl:
    """Where an issuer is, and what its tokens may call it."""

    url: str
    """With its scheme."""
    literal: str
    """As it was written; the same but for a missing scheme."""

    def names(self) -> frozenset[str]:
        """Return the values of ``iss`` that mean this issuer; there is no other likeness."""
        return frozenset({self.url, self.literal})


def parse_issuer_url(text: str, problems: Problems, *, allow_http: bool = False) -> IssuerUrl | None:
    """Read the address of an issuer; None if it is unfit, which is then among the problems.

    Without a scheme it means https, with a warning. With ``allow_http``, which is for development, a plain address on
    this machine is taken as well.
    """
    schemeless = not _SCHEME.match(text)
    parts = parse_https_url(f"https://{text}" if schemeless else text)
    if isinstance(parts, str) and allow_http and text.startswith("http://"):
        parts = _parse_local(text)
    if isinstance(parts, str):
        problems.add(INVALID, f"'{shorten(text, LONGEST)}' is not an issuer URL: {parts}. {_REMEDY}")
        return None
    if parts.query or "?" in text:
        problems.add(INVALID, f"'{text}' is not an issuer URL: it has a query. {_REMEDY}")
        return None
    if schemeless:
        problems.warn(INVALID, f"'{text}' has no scheme and is read as 'https://{text}'. Write the URL with https://.")
    return IssuerUrl(url=parts.geturl() if schemeless else text, literal=text)


def parse_https_url(text: str) -> SplitResult | str:
    """Parse an https address, or say what is wrong with it: it must be unambiguous."""
    return _parse_url(text, "https")


def host_of(url: str) -> str:
    """Return the host of an address that was found fit, in lower case."""
    return urlsplit(url).hostname or ""


def _parse_local(text: str) -> SplitResult | str:
    parts = _parse_url(text, "http")
    if isinstance(parts, SplitResult) and not is_loopback(parts.hostname or ""):
        return "http:// is only for loopback addresses"
    return parts


def _parse_url(text: str, scheme: str) -> SplitResult | str:
    if len(text) > LONGEST or not _PRINTABLE.fullmatch(text):
        return "it has spaces, characters that are not ASCII, or too many characters"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return "it cannot be parsed"
    host, steps = parts.hostname or "", parts.path.split("/")
    faults = (
        (not text.startswith(f"{scheme}://"), f"it does not start with {scheme}://"),
        ("\\" in text, "it has a backslash"),
        ("@" in parts.netloc, "it has a user"),
        ("#" in text, "it has a fragment"),
        (not _HOST.fullmatch(host) or ".." in host, "it has no valid host"),
        (port == 0 or parts.netloc.endswith(":"), "it has no valid port"),
        ("." in steps or ".." in steps, "its path has . or .. segments"),
    )
    return next((why for wrong, why in faults if wrong), parts)
