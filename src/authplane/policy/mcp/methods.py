"""The methods of MCP, and what each is about."""

import re
from collections.abc import Mapping
from typing import Any, Final

from authplane.policy.mcp.lookalikes import fold, has_lookalike
from authplane.policy.mcp.mcp_calls import TOOLS_CALL
from authplane.policy.mcp.mcp_versions import ProtocolVersion

NAMED_IN_HEADERS: Final = frozenset({TOOLS_CALL, "prompts/get", "resources/read"})
"""From 2026-07-28 on, ``Mcp-Name`` repeats what these are about."""
NOTIFICATIONS: Final = "notifications/"
DISCOVER: Final = "server/discover"
"""How a client finds out which versions a server speaks."""
LONGEST_NAME: Final = 256
LONGEST_ADDRESS: Final = 4096

NAMES: Final = {
    TOOLS_CALL: "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "resources/subscribe": "uri",
    "resources/unsubscribe": "uri",
    "tasks/cancel": "taskId",
    "tasks/get": "taskId",
    "tasks/result": "taskId",
    "tasks/update": "taskId",
}
"""By method, the parameter that says what a call is about."""
_ALL: Final = frozenset(ProtocolVersion)
_SESSIONS: Final = _ALL - {ProtocolVersion.V2026_07_28}
_VERSIONS: Final = {
    "resources/subscribe": _SESSIONS,
    "resources/unsubscribe": _SESSIONS,
    "tasks/cancel": frozenset({ProtocolVersion.V2025_11_25, ProtocolVersion.V2026_07_28}),
    "tasks/get": frozenset({ProtocolVersion.V2025_11_25, ProtocolVersion.V2026_07_28}),
    "tasks/result": frozenset({ProtocolVersion.V2025_11_25}),
    "tasks/update": frozenset({ProtocolVersion.V2026_07_28}),
}
"""The versions that have a method, if not all of them have it."""
_COMPLETE: Final = "completion/complete"
ABOUT_NOTHING: Final = frozenset({
    "initialize",
    "logging/setLevel",
    "notifications/cancelled",
    "notifications/initialized",
    "notifications/progress",
    "notifications/roots/list_changed",
    "ping",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    DISCOVER,
    "subscriptions/listen",
    "tasks/list",
    "tools/list",
})  # fmt: skip
"""The known methods that are about nothing in particular."""
_REFERENCES: Final = {"ref/prompt": "name", "ref/resource": "uri"}
_KNOWN: Final = ABOUT_NOTHING | frozenset(NAMES) | {_COMPLETE}
_FOLDED: Final = frozenset(fold(method) for method in _KNOWN)
_METHOD: Final = re.compile(r"[!-~]{1,128}")


def fit_method(method: object) -> bool:
    """Tell whether this can be a method: visible ASCII, and not a known one in other case."""
    if not isinstance(method, str):
        return False
    return method in _KNOWN or (_METHOD.fullmatch(method) is not None and method.lower() not in _FOLDED)


def subject_of(method: str, params: Mapping[str, Any], version: ProtocolVersion) -> str | None:
    """Return what a call is about; None if it does not say so although its method is about something.

    That is a name, an address or an id, and for a completion what its reference names. Other methods are about nothing
    that we know: empty. So are those that the version does not have, unless they say what they are about: it is the
    server that answers that it does not know them.
    """
    member = NAMES.get(method)
    if member is not None:
        if member not in params and version not in _VERSIONS.get(method, _ALL):
            return ""
        return _subject(params.get(member), member)
    return _referenced(params.get("ref")) if method == _COMPLETE else ""


def _subject(value: object, member: str) -> str | None:
    longest = LONGEST_ADDRESS if member == "uri" else LONGEST_NAME
    return value if isinstance(value, str) and 0 < len(value) <= longest and value.isprintable() else None


def _referenced(reference: object) -> str | None:
    if not isinstance(reference, dict) or has_lookalike(reference):
        return None
    kind = reference.get("type")
    member = _REFERENCES.get(kind) if isinstance(kind, str) else None
    if member is None or not reference.keys().isdisjoint({"name", "uri"} - {member}):
        return None
    return _subject(reference.get(member), member)
