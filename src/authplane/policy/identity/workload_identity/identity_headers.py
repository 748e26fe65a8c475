"""Headers in which proxies pass a client's identity to origins. We never read them, and remove a client's own."""

from collections.abc import Iterable
from typing import Final

IDENTITY_HEADERS: Final = (
    "client-cert",
    "client-cert-chain",
    "remote-user",
    "ssl-client-cert",
    "ssl-client-s-dn",
    "ssl-client-subject-dn",
    "ssl-client-verify",
    "x-authenticated-user",
    "x-client-cert",
    "x-client-certificate",
    "x-client-verify",
    "x-forwarded-client-cert",
    "x-forwarded-tls-client-cert",
    "x-forwarded-tls-client-cert-info",
    "x-forwarded-user",
    "x-remote-group",
    "x-remote-user",
    "x-service-account",
    "x-spiffe-id",
    "x-ssl-client-cert",
    "x-ssl-client-dn",
    "x-ssl-client-verify",
)
"""In lower case and in order."""

_KNOWN: Final = frozenset(IDENTITY_HEADERS)
_SPELLINGS: Final = tuple(sorted({form for name in _KNOWN for form in (name, name.replace("-", "_"))}))


def headers_to_strip(names: Iterable[str]) -> tuple[str, ...]:
    """List the identity headers that must not reach an origin.

    They are listed without reading them, with hyphens and with underscores, since a proxy may be configured to send
    only some headers; ``names`` are those of the request, and add mixed spellings.
    """
    mixed = {name for each in names if (name := each.lower()).replace("_", "-") in _KNOWN}
    return tuple(sorted(mixed.union(_SPELLINGS)))
