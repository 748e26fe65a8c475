import json
from base64 import b64encode
from typing import Any, Final, NamedTuple

import pytest
from tests.support.mcp.posted_messages import ACCEPT, NEWEST, fault, message, newest, post

from authplane.policy.mcp.mcp_calls import McpCall, MethodCall, Notification, OpenStream, ToolCall
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal
from authplane.policy.mcp.mcp_versions import ASSUMED, ProtocolVersion
from authplane.policy.mcp.mirrored_headers import VERSION_MEMBER, decode_value
from authplane.policy.mcp.read_request import read_mcp

V2026: Final = ProtocolVersion.V2026_07_28
META: Final = {VERSION_MEMBER: NEWEST, "io.modelcontextprotocol/clientCapabilities": {}}
SESSIONS: Final = [version for version in ProtocolVersion if version is not V2026]
MISMATCH: Final = McpRefusal(http_status=400, code=-32020, fault=Fault.HEADER_MISMATCH, id="1")


def test_the_version_is_that_of_the_header() -> None:
    for version in SESSIONS:
        call = post(message(), ("mcp-protocol-version", version.value))
        assert call == ToolCall(id="1", name="add", arguments={"a": 1}, version=version)
    without = post(message())
    assert isinstance(without, ToolCall)
    assert without.version is ASSUMED is ProtocolVersion.V2025_03_26


@pytest.mark.requirement("M2")
def test_versions_with_sessions_post_open_streams_and_end_sessions() -> None:
    for version in SESSIONS:
        headers = (("mcp-protocol-version", version.value), ("mcp-session-id", "s1"))
        call = post(message("initialize", {"protocolVersion": version.value}), *headers)
        assert isinstance(call, MethodCall)
        assert (call.version, call.session) == (version, "s1")
        for method in ("GET", "DELETE"):
            outcome = read_mcp(method, [ACCEPT, *headers, ("last-event-id", "e1")], "/mcp", b"", complete=True)
            assert not isinstance(outcome, McpRefusal)
            assert (outcome.version, outcome.session) == (version, "s1")
    assert read_mcp("GET", [ACCEPT], "/mcp", b"", complete=True) == OpenStream(version=ASSUMED)
    assert fault(post(message("ping"), ("mcp-protocol-version", "2025-06-19"))) is Fault.VERSION


@pytest.mark.parametrize(
    "header", ["2027-01-01", "2025-06-18 ", "", "latest", "2025-11-25,2025-11-25", "\udcff", "é" * 99]
)
def test_an_unknown_version_is_refused_and_the_known_ones_are_named(header: str) -> None:
    outcome = post(message(), ("mcp-protocol-version", header))
    assert isinstance(outcome, McpRefusal)
    assert (outcome.http_status, outcome.code, outcome.fault, outcome.id) == (400, -32022, Fault.VERSION, "1")
    assert json.loads(outcome.data) == {
        "supported": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
        "requested": header if header.isascii() else "",
    }
    opened = read_mcp("GET", [ACCEPT, ("mcp-protocol-version", header)], "/mcp", b"", complete=True)
    assert opened == McpRefusal(http_status=400, code=-32022, fault=Fault.VERSION)


@pytest.mark.parametrize("version", ["v999.0.0", "2027-01-01", "DRAFT-2026-v1"])
def test_only_the_server_says_which_versions_it_speaks(version: str) -> None:
    headers = [("mcp-protocol-version", version), ("mcp-method", "server/discover")]
    asked = message("server/discover", {"_meta": {**META, VERSION_MEMBER: version}})
    assert post(asked, *headers) == MethodCall(
        id="1", method="server/discover", params=asked["params"], version=ProtocolVersion.V2026_07_28
    )
    # All else that the newest version demands is demanded here.
    assert fault(post(asked, headers[0])) is Fault.HEADER_MISMATCH
    assert fault(post(message("server/discover", {"_meta": META}), *headers)) is Fault.HEADER_MISMATCH
    assert fault(post(message("server/discover", {}), *headers)) is Fault.ENVELOPE
    listed = message("tools/list", {"_meta": {**META, VERSION_MEMBER: version}})
    assert fault(post(listed, headers[0], ("mcp-method", "tools/list"))) is Fault.VERSION


@pytest.mark.parametrize("version", ["", " ", "a,b", "v" * 65, "é", "a b"])
def test_what_cannot_be_a_version_asks_no_server(version: str) -> None:
    asked = message("server/discover", {"_meta": {**META, VERSION_MEMBER: version}})
    assert fault(post(asked, ("mcp-protocol-version", version), ("mcp-method", "server/discover"))) is Fault.VERSION


@pytest.mark.requirement("M3")
@pytest.mark.parametrize("version", [None, "", 7, "2025-11-25"])
def test_a_message_that_names_a_version_needs_a_header_that_names_the_same(version: object) -> None:
    said = {"name": "add", "_meta": {VERSION_MEMBER: version}}
    assert post(message(params=said)) == MISMATCH


class Newest(NamedTuple):
    method: str
    params: dict[str, Any]
    name: str | None
    want: McpCall | McpRefusal
    headers: tuple[tuple[str, str], ...] = ()


def called(name: str) -> ToolCall:
    return ToolCall(id="1", name=name, arguments={}, version=V2026)


def encoded(text: str) -> str:
    return f"=?base64?{b64encode(text.encode()).decode()}?="


MIRRORS: Final = {
    "equal": Newest("tools/call", {"name": "add"}, "add", called("add")),
    "equal and encoded": Newest("tools/call", {"name": "caf\u00e9"}, encoded("caf\u00e9"), called("caf\u00e9")),
    "encoded without need": Newest("tools/call", {"name": "add"}, encoded("add"), called("add")),
    "no name": Newest("tools/call", {"name": "add"}, None, MISMATCH),
    "another name": Newest("tools/call", {"name": "evil"}, "add", MISMATCH),
    "another case": Newest("tools/call", {"name": "add"}, "Add", MISMATCH),
    "another name, encoded": Newest("tools/call", {"name": "evil"}, encoded("add"), MISMATCH),
    "encoded and not decoded": Newest("tools/call", {"name": encoded("add")}, encoded("add"), MISMATCH),
    "a name that looks encoded": Newest(
        "tools/call", {"name": encoded("add")}, encoded(encoded("add")), called(encoded("add"))
    ),
    "badly encoded": Newest("tools/call", {"name": "add"}, "=?base64?YWRk", MISMATCH),
    "another method": Newest("tools/call", {"name": "add"}, "add", MISMATCH, (("mcp-method", "ping"),)),
    "another case of the method": Newest(
        "tools/call", {"name": "add"}, "add", MISMATCH, (("mcp-method", "Tools/call"),)
    ),
    "another version in the header": Newest(
        "tools/call", {"name": "add"}, "add", MISMATCH, (("mcp-protocol-version", "2025-11-25"),)
    ),
    "another version in the message": Newest(
        "tools/call", {"name": "add", "_meta": {VERSION_MEMBER: "2025-11-25"}}, "add", MISMATCH
    ),
    "a version that is null": Newest("tools/call", {"name": "add", "_meta": {VERSION_MEMBER: None}}, "add", MISMATCH),
    "no version in the message": Newest(
        "tools/call",
        {"name": "add", "_meta": {}},
        "add",
        McpRefusal(http_status=400, code=-32602, fault=Fault.ENVELOPE, id="1"),
    ),
    "no meta": Newest(
        "tools/call",
        {"name": "add", "_meta": None},
        "add",
        McpRefusal(http_status=400, code=-32602, fault=Fault.ENVELOPE, id="1"),
    ),
    "a second version in another case": Newest(
        "tools/call",
        {"name": "add", "_meta": {**META, VERSION_MEMBER.upper(): "2025-11-25"}},
        "add",
        McpRefusal(http_status=400, code=-32600, fault=Fault.LOOKALIKE, id="1"),
    ),
    "a prompt's name": Newest(
        "prompts/get",
        {"name": "hi", "_meta": META},
        "hi",
        MethodCall(id="1", method="prompts/get", subject="hi", params={"name": "hi", "_meta": META}, version=V2026),
    ),
    "another prompt's name": Newest("prompts/get", {"name": "hi"}, "ho", MISMATCH),
    "a resource's address": Newest(
        "resources/read",
        {"uri": "x://a", "_meta": META},
        "x://a",
        MethodCall(
            id="1", method="resources/read", subject="x://a", params={"uri": "x://a", "_meta": META}, version=V2026
        ),
    ),
    "another resource's address": Newest("resources/read", {"uri": "x://a"}, "x://b", MISMATCH),
    "a name instead of the address": Newest("resources/read", {"uri": "x://a", "name": "n"}, "n", MISMATCH),
    "a task's id": Newest(
        "tasks/get",
        {"taskId": "t", "_meta": META},
        "t",
        MethodCall(id="1", method="tasks/get", subject="t", params={"taskId": "t", "_meta": META}, version=V2026),
    ),
    "a name of nothing": Newest("server/discover", {}, "x", MISMATCH),
    "a method that is about nothing": Newest(
        "server/discover",
        {"_meta": META},
        None,
        MethodCall(id="1", method="server/discover", params={"_meta": META}, version=V2026),
    ),
}


@pytest.mark.requirement("M3")
@pytest.mark.parametrize("case", MIRRORS.values(), ids=MIRRORS.keys())
def test_headers_say_what_the_message_says(case: Newest) -> None:
    assert newest(case.method, case.params, *case.headers, name=case.name) == case.want


def test_the_newest_version_demands_its_headers_also_of_a_tool_call_without_an_id() -> None:
    body = message(params={"name": "add", "_meta": META}, id=...)
    version = ("mcp-protocol-version", NEWEST)
    assert fault(post(body, version)) is Fault.HEADER_MISMATCH
    assert fault(post(body, version, ("mcp-method", "tools/call"))) is Fault.HEADER_MISMATCH
    assert fault(post(body, version, ("mcp-method", "tools/call"), ("mcp-name", "evil"))) is Fault.HEADER_MISMATCH
    assert fault(post(body, version, ("mcp-method", "tools/call"), ("mcp-name", "add"))) is None


def test_a_message_of_the_newest_version_needs_the_header_that_says_so() -> None:
    assert post(message(params={"name": "add", "_meta": META})) == MISMATCH


def test_headers_that_a_version_does_not_demand_are_not_believed_either() -> None:
    older = ("mcp-protocol-version", "2025-11-25")
    assert post(message(), older, ("mcp-method", "ping")) == MISMATCH
    assert post(message(), older, ("mcp-name", "evil")) == MISMATCH
    assert fault(post(message(), older, ("mcp-method", "tools/call"), ("mcp-name", "add"))) is None
    response = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert fault(post(response, older, ("mcp-method", "ping"))) is Fault.HEADER_MISMATCH
    opened = read_mcp("GET", [ACCEPT, older, ("mcp-method", "ping")], "/mcp", b"", complete=True)
    assert fault(opened) is Fault.HEADER_MISMATCH


def test_the_newest_version_has_neither_sessions_nor_responses() -> None:
    version = ("mcp-protocol-version", NEWEST)
    for method in ("GET", "DELETE"):
        outcome = read_mcp(method, [ACCEPT, version, ("mcp-session-id", "s")], "/mcp", b"", complete=True)
        assert outcome == McpRefusal(http_status=405, code=-32600, fault=Fault.SESSIONLESS)
    assert post({"jsonrpc": "2.0", "id": 1, "result": {}}, version) == McpRefusal(
        http_status=400, code=-32600, fault=Fault.RESPONSE
    )


def test_notifications_of_the_newest_version_need_nothing_but_must_not_lie() -> None:
    body, version = message("notifications/cancelled", {"requestId": 1}, id=...), ("mcp-protocol-version", NEWEST)
    want = Notification(method="notifications/cancelled", params={"requestId": 1}, version=V2026)
    assert post(body, version) == want
    assert post(body, version, ("mcp-method", "notifications/cancelled")) == want
    assert fault(post(body, version, ("mcp-method", "tools/call"))) is Fault.HEADER_MISMATCH


VALUES: Final = {
    "add": "add",
    "=?base64?YWRk?=": "add",
    "=?base64??=": "",
    "=?base64?YWR?=": None,
    "=?base64?YWRl=?=": None,
    "=?base64?YR==?=": None,
    "=?base64?Y WRk?=": None,
    "=?base64?/w==?=": None,
    "=?BASE64?YWRk?=": "=?BASE64?YWRk?=",
    "=?base64?=": "=?base64?=",
    "=?base64?\u00e9?=": None,
}


@pytest.mark.parametrize(("header", "want"), VALUES.items())
def test_decode_value(header: str, want: str | None) -> None:
    assert decode_value(header) == want
