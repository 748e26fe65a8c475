"""The reply of an external service to the client, as far as a proxy may forward it."""

from collections.abc import Iterable
from typing import Final

from authplane.policy.check.answer_headers import may_send
from authplane.policy.verdicts.effects import Declined

_OWN: Final = frozenset({"date", "proxy-authenticate", "proxy-authentication-info", "proxy-connection", "server"})
"""What the service says of itself, or to us alone."""
_PROXY: Final = ("x-authplane-", "x-envoy-")
"""How names begin in which proxies are spoken to."""
_MOST_HEADERS: Final = 64
_MOST_BYTES: Final = 32 * 1024


def is_for_proxies(name: str) -> bool:
    """Tell whether a header is for a proxy: a service must not control our proxy or one behind it."""
    return name.lower().startswith(_PROXY)


def client_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the headers that a client may get, in order and with names in lower case; a name may occur twice.

    Headers that frame the message or apply to the connection only, and invalid headers, are left out. If there are more
    than a proxy can forward, none is returned.
    """
    named = [(name.lower(), value.strip(" \t")) for name, value in headers]
    nominated = {each.strip().lower() for name, value in named if name == "connection" for each in value.split(",")}
    kept = tuple(
        (name, value)
        for name, value in named
        if may_send(name, value) and name not in _OWN | nominated and not is_for_proxies(name)
    )
    size = sum(len(name) + len(value) for name, value in kept)
    return kept if len(kept) <= _MOST_HEADERS and size <= _MOST_BYTES else ()


def added_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return what may be added to the answer of the origin: nothing that says how its body is to be read."""
    return tuple((name, value) for name, value in client_headers(headers) if not name.startswith("content-"))


def build_declined(http_status: int, headers: Iterable[tuple[str, str]], body: bytes | None) -> Declined:
    """Build a denial; a body that is not plain text, or None for one that is too long, is left out."""
    kept = client_headers(headers)
    text = _text(body or b"")
    encoded = any(name == "content-encoding" and value.lower() != "identity" for name, value in kept)
    if not text or encoded:
        bare = tuple((name, value) for name, value in kept if not name.startswith("content-"))
        return Declined(http_status=http_status, headers=bare)
    return Declined(http_status=http_status, headers=kept, body=text)


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return ""
