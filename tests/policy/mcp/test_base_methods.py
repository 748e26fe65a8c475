from typing import Final

import pytest
from tests.support.mcp.posted_messages import message, newest, post

from authplane.policy.mcp.base_methods import UPSTREAM_BASE, is_base
from authplane.policy.mcp.mcp_calls import (
    ClientResponse,
    EndSession,
    McpCall,
    MethodCall,
    Notification,
    OpenStream,
    ToolCall,
)
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.mcp.mcp_versions import ProtocolVersion

OLD: Final = ProtocolVersion.V2025_11_25
NEW: Final = ProtocolVersion.V2026_07_28


def method(name: str, version: ProtocolVersion) -> McpCall:
    return MethodCall(id="1", method=name, params={}, version=version)


def notice(name: str, version: ProtocolVersion) -> McpCall:
    return Notification(method=name, params={}, version=version)


BASE: Final = {
    "initialize": (method("initialize", OLD), True),
    "initialize without sessions": (method("initialize", NEW), False),
    "ping": (method("ping", OLD), True),
    "ping without sessions": (method("ping", NEW), False),
    "discover": (method("server/discover", NEW), True),
    "discover before there was any": (method("server/discover", OLD), False),
    "the list of tools": (method("tools/list", OLD), True),
    "the list of tools without sessions": (method("tools/list", NEW), True),
    "initialized": (notice("notifications/initialized", OLD), True),
    "initialized as a request": (method("notifications/initialized", OLD), False),
    "initialized without sessions": (notice("notifications/initialized", NEW), False),
    "cancelled": (notice("notifications/cancelled", OLD), True),
    "cancelled without sessions": (notice("notifications/cancelled", NEW), True),
    "a notification that nobody knows": (notice("notifications/x", OLD), False),
    "a response": (ClientResponse(version=OLD), True),
    "a stream": (OpenStream(version=OLD), True),
    "the end of a session": (EndSession(version=OLD, session="s"), True),
    "a tool": (ToolCall(id="1", name="tools/list", arguments={}, version=OLD), False),
    "a tool without an id": (ToolCall(id=None, name="ping", arguments={}, version=NEW), False),
    **{
        f"{name} of {version.value}": (method(name, version), False)
        for name in (
            "prompts/list", "prompts/get", "resources/list", "resources/read", "resources/templates/list",
            "resources/subscribe", "completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/get",
            "tasks/list", "sampling/createMessage", "tools/list/x", "tools/call/x", "vendor/x",
        )
        for version in (OLD, NEW)
    },
}  # fmt: skip


@pytest.mark.parametrize(("call", "want"), BASE.values(), ids=BASE.keys())
def test_is_base(call: McpCall, want: bool) -> None:
    assert is_base(call) is want


def test_every_version_before_the_newest_has_sessions() -> None:
    for version in ProtocolVersion:
        assert is_base(OpenStream(version=version)) is (version is not NEW)


def test_upstream_counts_completions_and_logging_in() -> None:
    for name in ("completion/complete", "logging/setLevel", "initialize", "tools/list"):
        assert is_base(method(name, OLD), UPSTREAM_BASE)
    assert is_base(notice("notifications/anything", OLD), UPSTREAM_BASE)
    for name in ("prompts/get", "resources/read", "tasks/get"):
        assert not is_base(method(name, OLD), UPSTREAM_BASE)
    assert not is_base(ToolCall(id="1", name="a", arguments={}, version=OLD), UPSTREAM_BASE)


def test_what_clients_send_first_is_of_the_base_protocol() -> None:
    first = [
        post(message("initialize", {"protocolVersion": "2025-06-18"})),
        post(message("notifications/initialized", id=...)),
        newest("server/discover", {}),
    ]
    assert all(not isinstance(call, McpRefusal) and is_base(call) for call in first)


@pytest.mark.requirement("M10")
def test_responses_and_notifications_are_never_a_call_of_a_tool() -> None:
    tool = {"name": "add", "arguments": {}}
    for body in (
        {"jsonrpc": "2.0", "id": 1, "result": tool},
        {"jsonrpc": "2.0", "id": 1, "result": {"method": "tools/call", "params": tool}},
        message("notifications/tools/call", tool, id=...),
    ):
        call = post(body)
        assert isinstance(call, ClientResponse | Notification)
