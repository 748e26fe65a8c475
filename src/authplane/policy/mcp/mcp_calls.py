"""The calls that a request to an MCP server can make."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.policy.mcp.mcp_versions import ProtocolVersion

RpcId: TypeAlias = str
"""The id of a JSON-RPC request as its sender wrote it, such as ``7``, ``"a"`` or ``null``: ready to be sent back."""

TOOLS_CALL: Final = "tools/call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """``tools/call``, with an id or without: some servers run the tool either way."""

    id: RpcId | None
    """None if the message has none; its denial then needs no body."""
    name: str
    """The tool's name, to the letter: nothing is folded, trimmed or normalised."""
    arguments: Mapping[str, Any] = field(repr=False)
    version: ProtocolVersion
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCall:
    """Any other method that is called, known or not, with an id or without."""

    id: RpcId | None
    method: str
    subject: str = ""
    """What it is about: the prompt's name, the resource's address, the task's id; empty if it has none of these."""
    params: Mapping[str, Any] = field(repr=False)
    version: ProtocolVersion
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A message of the family ``notifications/`` without an id; it gets no response."""

    method: str
    params: Mapping[str, Any] = field(repr=False)
    version: ProtocolVersion
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResponse:
    """The client's response to a request of the server; until 2025-11-25."""

    version: ProtocolVersion
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStream:
    """GET: the client wants to hear what the server has to say; until 2025-11-25."""

    version: ProtocolVersion
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSession:
    """DELETE: the client needs its session no longer; until 2025-11-25."""

    version: ProtocolVersion
    session: str


def build_tool_call(
    id_: RpcId | None, name: str, arguments: Mapping[str, Any], version: ProtocolVersion, session: str
) -> ToolCall:
    """Do what ``ToolCall(...)`` does, in half the time: nearly every check makes one."""
    call = _new(ToolCall)
    _put_id(call, id_)
    _put_name(call, name)
    _put_arguments(call, arguments)
    _put_version(call, version)
    _put_session(call, session)
    return call


_new: Final = object.__new__
_put_id, _put_name, _put_arguments, _put_version, _put_session = (
    vars(ToolCall)[name].__set__ for name in ("id", "name", "arguments", "version", "session")
)

McpCall: TypeAlias = ToolCall | MethodCall | Notification | ClientResponse | OpenStream | EndSession


def method_of(call: McpCall) -> str:
    """Return the JSON-RPC method of a call, for logs and rules; empty if it is no call of a method."""
    match call:
        case ToolCall():
            return TOOLS_CALL
        case MethodCall(method=method) | Notification(method=method):
            return method
        case ClientResponse() | OpenStream() | EndSession():
            return ""
        case _:
            assert_never(call)


def id_of(call: McpCall) -> RpcId | None:
    """Return the id under which the client waits for an answer; None if it waits for none."""
    match call:
        case ToolCall(id=id_) | MethodCall(id=id_):
            return id_
        case Notification() | ClientResponse() | OpenStream() | EndSession():
            return None
        case _:
            assert_never(call)
