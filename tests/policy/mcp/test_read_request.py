from typing import Any, Final, NamedTuple

import pytest
from tests.support.mcp.posted_messages import fault, message, newest, post

from authplane.policy.mcp.mcp_calls import (
    ClientResponse,
    McpCall,
    MethodCall,
    Notification,
    ToolCall,
    id_of,
    method_of,
)
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal
from authplane.policy.mcp.mcp_versions import ASSUMED, ProtocolVersion
from authplane.policy.mcp.methods import NAMED_IN_HEADERS

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


EVERY: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
NEEDED: Final = {
    "tools/call": EVERY,
    "prompts/get": EVERY,
    "resources/read": EVERY,
    "completion/complete": EVERY,
    "resources/subscribe": EVERY[:-1],
    "resources/unsubscribe": EVERY[:-1],
    "tasks/get": EVERY[3:],
    "tasks/cancel": EVERY[3:],
    "tasks/result": ("2025-11-25",),
    "tasks/update": ("2026-07-28",),
}
"""By method, the versions in which a call has to say what it is about."""


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize("method", NEEDED)
def test_what_a_method_needs_depends_on_the_version(method: str, version: str) -> None:
    def send(params: dict[str, Any]) -> McpCall | McpRefusal:
        if version == "2026-07-28":
            return newest(method, params, name="x" if method in NAMED_IN_HEADERS else None)
        return post(message(method, params), ("mcp-protocol-version", version))

    if version in NEEDED[method]:
        assert fault(send({})) is Fault.SUBJECT
        return
    call = send({})
    # The server answers that it does not know the method.
    assert isinstance(call, MethodCall)
    assert (call.method, call.subject, call.version) == (method, "", version)
    # What is there is judged all the same.
    member = "uri" if method.startswith("resources/") else "taskId"
    named = send({member: "s"})
    assert isinstance(named, MethodCall)
    assert named.subject == "s"
    assert fault(send({member: 7})) is Fault.SUBJECT


@pytest.mark.requirement("M4")
def test_a_tool_call_without_an_id_names_its_tool_and_waits_for_no_answer() -> None:
    call = post(message(id=...))
    assert isinstance(call, ToolCall)
    assert (call.name, id_of(call), method_of(call)) == ("add", None, "tools/call")


IDS: Final = (
    "7", "-1", "0", "-0", "0.0", "-0e3", "1.0", "1e2", "1.50", "9007199254740993", "12345678901234567890",
    "123456789012345678901234567890", "null", '""', '"a"', '"\\u0061"', '"a\\u00e9\\n\\"<"', '"\\/"', '"é"', '"]},{"',
)  # fmt: skip
PLACES: Final = (
    '{{"jsonrpc":"2.0","id":{id},"method":"ping"}}',
    '{{"method":"ping","params":{{"id":5,"x":[{{"id":6}},"id"]}},"jsonrpc":"2.0","id":{id}}}',
    ' {{ "x" : "id" ,\n"\\u0069d" :\t{id} , "x.id": 2, "params": {{"t": "\\""}}, "jsonrpc":"2.0","method":"ping" }} ',
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sent", IDS)
def test_an_id_is_kept_byte_for_byte(sent: str, place: str) -> None:
    call = post(place.format(id=sent))
    assert isinstance(call, MethodCall)
    assert call.id == sent
    refused = post(place.format(id=sent), ("authorization", "Bearer a"), ("authorization", "Bearer b"))
    assert isinstance(refused, McpRefusal)
    assert (refused.fault, refused.id) == (Fault.HEADER_REPEATED, sent)


@pytest.mark.parametrize("sent", ["true", "[]", "{}", f'"{"a" * 1025}"'])
def test_what_can_be_no_id_is_refused(sent: str) -> None:
    assert post(f'{{"jsonrpc":"2.0","id":{sent},"method":"ping"}}') == McpRefusal(
        http_status=400, code=-32600, fault=Fault.ID
    )
