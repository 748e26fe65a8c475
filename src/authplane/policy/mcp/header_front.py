"""Reads the headers of a request, before its body is trusted."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from authplane.policy.mcp.mcp_refusal import Fault

_SINGLE: Final = frozenset(
    {
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
        "x-envoy-auth-partial-body",
    }
)
"""Two of one of these, and two readers may believe different ones."""
_LISTS: Final = frozenset({"accept", "connection"})
_NEVER: Final = {
    "x-http-method": Fault.METHOD_OVERRIDE,
    "x-http-method-override": Fault.METHOD_OVERRIDE,
    "x-method-override": Fault.METHOD_OVERRIDE,
    # A proxy does not wait for the body of an upgrade, so a check would not contain it.
    "upgrade": Fault.UPGRADE,
    "http2-settings": Fault.UPGRADE,
    ":protocol": Fault.UPGRADE,
}
_COMMA_FREE: Final = ("authorization", "last-event-id", "mcp-session-id")
"""Envoy joins headers of one name by commas, and these have none of their own: so they are known to be several."""
_WATCHED: Final = _SINGLE | _LISTS | frozenset(_NEVER)
WATCHED: Final = tuple(sorted(_WATCHED))
"""The headers that are looked at, besides those that are spelled almost like them."""

_SEGMENT: Final = r"(?:[A-Za-z0-9._~!$&'()*+,=:@-]|%(?:[89A-Fa-f][0-9A-Fa-f]|20))"
_PATH: Final = re.compile(rf"/|(?:/(?!\.\.?(?:/|$)){_SEGMENT}+)+/?")
_SESSION: Final = re.compile(r"[!-~]+")
_CONTENT_TYPE: Final = re.compile(r'application/json(?:; ?(?i:charset)=(?i:utf-8|"utf-8"))?')
_EVENT_STREAMS: Final = frozenset({"text/event-stream", "text/*", "*/*"})


Front: TypeAlias = Mapping[str, str]
"""The headers that matter, by their names in lower case, each with its only value."""


def read_front(headers: dict[str, str] | Iterable[tuple[str, str]]) -> dict[str, str] | Fault:
    """Take the headers that matter, or say why the request cannot be for an MCP server.

    Those that are given by name are in lower case, each is there once, and no other is spelled almost like one of them.
    """
    if isinstance(headers, dict):
        if not _NEVER.keys().isdisjoint(headers):
            return next(_NEVER[name] for name in _NEVER if name in headers)
        fault = _fault(headers)
        return headers if fault is None else fault
    found: dict[str, str] = {}
    for spelt, value in headers:
        name = spelt.lower()
        if name not in _WATCHED:
            if "_" in name and name.replace("_", "-") in _WATCHED:
                return Fault.HEADER_MISSPELT
        elif name in _NEVER:
            return _NEVER[name]
        elif name not in found:
            found[name] = value
        elif name in _LISTS:
            found[name] += f",{value}"
        else:
            return Fault.HEADER_REPEATED
    fault = _fault(found)
    return found if fault is None else fault


def canonical_path(path: str) -> bool:
    """Tell whether every server reads a path in the same way.

    It has no dot segments, empty segments, backslashes, parameters, or unnecessary escapes: a server that decodes a
    path once more, or that merges slashes, gets the same path.
    """
    return _PATH.fullmatch(path) is not None


def is_json(content_type: str | None) -> bool:
    """Tell whether a body is JSON in UTF-8, by the one header that says so."""
    return content_type is not None and _CONTENT_TYPE.fullmatch(content_type) is not None


def accepts_events(accept: str | None) -> bool:
    """Tell whether a client takes a stream of events."""
    kinds = (kind.partition(";")[0].strip().lower() for kind in (accept or "").split(","))
    return any(kind in _EVENT_STREAMS for kind in kinds)


def _fault(found: Mapping[str, str]) -> Fault | None:
    connection = found.get("connection")
    if connection is not None and "upgrade" in connection.lower():
        return Fault.UPGRADE
    for name in _COMMA_FREE:
        if name in found and "," in found[name]:
            return Fault.HEADER_REPEATED
    session = found.get("mcp-session-id")
    return Fault.SESSION if session is not None and not _SESSION.fullmatch(session) else None
