import json
from typing import Any, Final, NamedTuple

import pytest
from tests.policy.mcp.posting import fault, message, post

from authplane.policy.mcp.calls import (
    ClientResponse,
    McpCall,
    MethodCall,
    Notification,
    ToolCall,
    id_of,
    method_of,
)
from authplane.policy.mcp.refusal import Fault, McpRefusal
from authplane.policy.mcp.versions import ASSUMED, ProtocolVersion

V2025_11_25: Final = ProtocolVersion.V2025_11_25


def test_a_tool_call_is_read_whole() -> None:
    headers = (("mcp-protocol-version", "2025-11-25"), ("mcp-session-id", "s1"))
    assert post(message(), *headers) == ToolCall(
        id="1", name="add", arguments={"a": 1}, version=V2025_11_25, session="s1"
    )


class Read(NamedTuple):
    message: dict[str, Any]
    want: McpCall


READ: Final = {
    "a tool call without arguments has none": Read(
        message(params={"name": "now"}), ToolCall(id="1", name="now", arguments={}, version=ASSUMED)
    ),
    "null arguments are none": Read(
        message(params={"name": "now", "arguments": None}), ToolCall(id="1", name="now", arguments={}, version=ASSUMED)
    ),
    "a tool call without an id is one": Read(
        message(id=...), ToolCall(id=None, name="add", arguments={"a": 1}, version=ASSUMED)
    ),
    "a prompt is known by its name": Read(
        message("prompts/get", {"name": "hello"}),
        MethodCall(id="1", method="prompts/get", subject="hello", params={"name": "hello"}, version=ASSUMED),
    ),
    "a resource is known by its address": Read(
        message("resources/read", {"uri": "x://a"}),
        MethodCall(id="1", method="resources/read", subject="x://a", params={"uri": "x://a"}, version=ASSUMED),
    ),
    "a subscription is known by its address": Read(
        message("resources/subscribe", {"uri": "x://a"}),
        MethodCall(id="1", method="resources/subscribe", subject="x://a", params={"uri": "x://a"}, version=ASSUMED),
    ),
    "a task is known by its id": Read(
        message("tasks/result", {"taskId": "t1"}),
        MethodCall(id="1", method="tasks/result", subject="t1", params={"taskId": "t1"}, version=ASSUMED),
    ),
    "a completion is known by its reference": Read(
        message("completion/complete", {"ref": {"type": "ref/prompt", "name": "hello"}}),
        MethodCall(
            id="1",
            method="completion/complete",
            subject="hello",
            params={"ref": {"type": "ref/prompt", "name": "hello"}},
            version=ASSUMED,
        ),
    ),
    "an unknown method is read as such": Read(
        message("vendor/thing"), MethodCall(id="1", method="vendor/thing", params={}, version=ASSUMED)
    ),
    "a method without params has none": Read(
        message("ping"), MethodCall(id="1", method="ping", params={}, version=ASSUMED)
    ),
    "a method without an id is still called": Read(
        message("resources/list", id=...), MethodCall(id=None, method="resources/list", params={}, version=ASSUMED)
    ),
    "a notification has no id": Read(
        message("notifications/initialized", id=...),
        Notification(method="notifications/initialized", params={}, version=ASSUMED),
    ),
    "what has an id is no notification": Read(
        message("notifications/initialized"),
        MethodCall(id="1", method="notifications/initialized", params={}, version=ASSUMED),
    ),
    "a result is a response": Read({"jsonrpc": "2.0", "id": 4, "result": {}}, ClientResponse(version=ASSUMED)),
    "an error is a response": Read(
        {"jsonrpc": "2.0", "id": 4, "error": {"code": -1, "message": "no"}}, ClientResponse(version=ASSUMED)
    ),
    "unknown members mean nothing": Read(
        message("ping", trace="x"), MethodCall(id="1", method="ping", params={}, version=ASSUMED)
    ),
}


@pytest.mark.parametrize("case", READ.values(), ids=READ.keys())
def test_what_is_read(case: Read) -> None:
    assert post(case.message) == case.want


@pytest.mark.requirement("M8")
def test_known_methods_are_judged_by_what_they_are_about_each_time_they_are_called() -> None:
    about: dict[str, dict[str, Any]] = {
        "tools/call": {"name": "s"},
        "prompts/get": {"name": "s"},
        "resources/read": {"uri": "s"},
        "resources/subscribe": {"uri": "s"},
        "resources/unsubscribe": {"uri": "s"},
        "tasks/get": {"taskId": "s"},
        "tasks/result": {"taskId": "s"},
        "tasks/cancel": {"taskId": "s"},
        "tasks/update": {"taskId": "s"},
        "completion/complete": {"ref": {"type": "ref/resource", "uri": "s"}},
    }
    for method, params in about.items():
        # A retry with what was asked for repeats the call, and is read as the same.
        for more in (dict[str, Any](), {"inputResponses": {"q": {}}, "requestState": "x"}):
            call = post(message(method, {**params, **more}))
            assert isinstance(call, ToolCall | MethodCall)
            assert (call.name if isinstance(call, ToolCall) else call.subject) == "s"
        assert fault(post(message(method, {}))) is Fault.SUBJECT


@pytest.mark.requirement("M4")
def test_a_tool_call_without_an_id_names_its_tool_and_waits_for_no_answer() -> None:
    call = post(message(id=...))
    assert isinstance(call, ToolCall)
    assert (call.name, id_of(call), method_of(call)) == ("add", None, "tools/call")


IDS: Final = {
    "7": "7",
    "-1": "-1",
    "12345678901234567890": "12345678901234567890",
    "1.5": "1.5",
    "null": "null",
    '""': '""',
    '"a\\u00e9\\n\\"<"': '"a\\u00e9\\n\\"<"',
    '"é"': '"\\u00e9"',
}


@pytest.mark.parametrize(("sent", "kept"), IDS.items())
def test_an_id_is_kept_so_that_it_can_be_sent_back(sent: str, kept: str) -> None:
    call = post(f'{{"jsonrpc":"2.0","id":{sent},"method":"ping"}}')
    assert isinstance(call, MethodCall)
    assert call.id == kept
    assert json.loads(kept) == json.loads(sent)


@pytest.mark.parametrize("sent", ["true", "[]", "{}", f'"{"a" * 1025}"'])
def test_what_can_be_no_id_is_refused(sent: str) -> None:
    assert post(f'{{"jsonrpc":"2.0","id":{sent},"method":"ping"}}') == McpRefusal(
        http_status=400, code=-32600, fault=Fault.ID
    )
