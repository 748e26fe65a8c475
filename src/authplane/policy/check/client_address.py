"""The address of the client, where other proxies forward requests to the proxy that sends the check."""

from typing import Final

from authplane.policy.check.request import Request

TRUSTED_HOPS: Final = "authplane.trusted-hops"
"""The key of a route's context that says how many proxies there are."""
_FORWARDED: Final = "x-forwarded-for"


def client_address(request: Request, hops: int = 0) -> str:
    """Return the client's address as the nearest ``hops`` proxies report it; without hops, the address of the peer.

    Envoy appends its own peer to ``x-forwarded-for`` before the check, so the last address is that of the nearest
    proxy. Addresses to the left of the trusted proxies are claims of the client. If there are fewer addresses than
    proxies, the request did not come through all of them: then its peer counts, as in Envoy.
    """
    trusted = hops or hops_of(request)
    if not trusted:
        return request.source.address
    told = [each.strip() for value in request.values(_FORWARDED) for each in value.split(",")]
    return told[-trusted - 1] if len(told) > trusted else request.source.address


def hops_of(request: Request) -> int:
    """Return the number of proxies before the one that sends the check, from the context of the route."""
    text = request.context.get(TRUSTED_HOPS, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 3 else 0
