"""The base protocol: what a client needs before it can use anything.

Until 2025-11-25 a client initializes, lists tools, answers the server's requests, listens to it and ends its session;
since 2026-07-28 it only discovers the server and lists tools. Other lists, completions, subscriptions and tasks show
data, and logging changes the server: they need a rule of their own.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from authplane.core.values import dataclass
from authplane.policy.mcp.mcp_calls import (
    ClientResponse,
    EndSession,
    McpCall,
    MethodCall,
    Notification,
    OpenStream,
    ToolCall,
)
from authplane.policy.mcp.mcp_versions import ProtocolVersion


class BaseMode(StrEnum):
    """The senders that may use the base protocol without a rule that names it."""

    ANY_SOURCE = "AnySource"
    """To every sender, as in XAccessPolicy v0alpha0."""
    MATCHED_SOURCE = "MatchedSource"
    """To sources of rules that grant something. Other senders get a challenge, which says where to get a token."""
    EXPLICIT = "Explicit"
    """To no sender, as in XAccessPolicy v1alpha1, whose rules name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseMethods:
    """The base protocol of a version."""

    requests: frozenset[str]
    notifications: frozenset[str]
    families: tuple[str, ...] = ()
    """What the names of further methods begin with."""
    sessions: bool
    """Whether clients may open streams, end sessions and answer the server's requests."""


_SESSIONS: Final = BaseMethods(
    requests=frozenset({"initialize", "ping", "tools/list"}),
    notifications=frozenset(
        {
            "notifications/cancelled",
            "notifications/initialized",
            "notifications/progress",
            "notifications/roots/list_changed",
        }
    ),
    sessions=True,
)
_STATELESS: Final = BaseMethods(
    requests=frozenset({"server/discover", "tools/list"}),
    notifications=frozenset({"notifications/cancelled"}),
    sessions=False,
)
BASE: Final[Mapping[ProtocolVersion, BaseMethods]] = MappingProxyType(
    {version: _STATELESS if version is ProtocolVersion.V2026_07_28 else _SESSIONS for version in ProtocolVersion}
)
"""The base protocol of each version."""

_FAMILIES: Final = ("completion/", "logging/", "notifications/")
UPSTREAM_BASE: Final[Mapping[ProtocolVersion, BaseMethods]] = MappingProxyType(
    {
        version: BaseMethods(
            requests=base.requests, notifications=base.notifications, families=_FAMILIES, sessions=base.sessions
        )
        for version, base in BASE.items()
    }
)
"""What ``MATCH_BASE_PROTOCOL_METHODS`` of XAccessPolicy v1alpha1 means: completions and logging as well."""


def is_base(call: McpCall, table: Mapping[ProtocolVersion, BaseMethods] = BASE) -> bool:
    """Tell whether a call is of the base protocol of its version; that of a tool never is."""
    base = table[call.version]
    match call:
        case ToolCall():
            return False
        case MethodCall(method=method):
            return method in base.requests or method.startswith(base.families)
        case Notification(method=method):
            return method in base.notifications or method.startswith(base.families)
        case ClientResponse() | OpenStream() | EndSession():
            return base.sessions
        case _:
            assert_never(call)
