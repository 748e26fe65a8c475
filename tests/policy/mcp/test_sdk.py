"""What the official SDK's client sends is read as what its user asked for, in every version that it speaks."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import httpx2
import mcp_types
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer
from mcp.shared.inbound import (
    InboundLadderRejection,
    classify_inbound_request,
    decode_header_value,
    encode_header_value,
)
from mcp_types.methods import CLIENT_NOTIFICATIONS, CLIENT_REQUESTS
from tests.support.mcp.posted_messages import message, newest, post

from authplane.policy.mcp.base_methods import is_base
from authplane.policy.mcp.mcp_calls import (
    EndSession,
    McpCall,
    MethodCall,
    Notification,
    OpenStream,
    ToolCall,
    method_of,
)
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.mcp.mirrored_headers import decode_value
from authplane.policy.mcp.read_request import read_mcp

URL: Final = "http://127.0.0.1:8000/mcp"


class Sent(NamedTuple):
    """A request as the client made it, and what we read of it."""

    call: McpCall | McpRefusal
    status: int


def server() -> MCPServer:
    made = MCPServer("tools", log_level="ERROR")

    def add(a: int, b: int) -> int:
        return a + b

    def hello(name: str) -> str:
        return f"Hello {name}"

    def notes() -> str:
        return "text"

    made.tool()(add)
    made.tool("caf\u00e9 au lait")(add)
    made.prompt()(hello)
    made.resource("x://notes")(notes)
    return made


async def traffic(mode: Any, use: Callable[[Client], Coroutine[None, None, None]]) -> list[Sent]:
    """Let a client talk to a server, both the official ones, and read everything it sends on the way."""
    sent: list[Sent] = []
    made = server()
    app = made.streamable_http_app()

    async def read(answer: httpx2.Response) -> None:
        request = answer.request
        headers = [(name.decode(), value.decode()) for name, value in request.headers.raw]
        call = read_mcp(request.method, headers, request.url.path, await request.aread(), complete=True)
        sent.append(Sent(call, answer.status_code))

    async with (
        asyncio.timeout(10),
        made.session_manager.run(),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app), event_hooks={"response": [read]}) as http,
        Client(streamable_http_client(URL, http_client=http), mode=mode) as client,
    ):
        await use(client)
    return sent


async def everything(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("add", {"a": 1, "b": 2})
    await client.call_tool("caf\u00e9 au lait", {"a": 1, "b": 2})
    await client.list_prompts()
    await client.get_prompt("hello", {"name": "x"})
    await client.list_resources()
    await client.read_resource("x://notes")


def subject(call: McpCall) -> str:
    match call:
        case ToolCall(name=name):
            return name
        case MethodCall(subject=about):
            return about
        case _:
            return ""


USED: Final = [
    ("tools/list", "", True),
    ("tools/call", "add", False),
    ("tools/call", "caf\u00e9 au lait", False),
    ("prompts/list", "", False),
    ("prompts/get", "hello", False),
    ("resources/list", "", False),
    ("resources/read", "x://notes", False),
]


def seen(sent: list[Sent]) -> list[tuple[str, str, bool]]:
    calls = [each.call for each in sent if not isinstance(each.call, McpRefusal)]
    assert len(calls) == len(sent)
    return [(method_of(call), subject(call), is_base(call)) for call in calls if method_of(call)]


async def test_a_client_with_a_session_is_understood() -> None:
    sent = await traffic("legacy", everything)
    assert seen(sent) == [("initialize", "", True), ("notifications/initialized", "", True), *USED]
    kinds = {type(each.call) for each in sent}
    assert EndSession in kinds
    assert kinds <= {MethodCall, Notification, ToolCall, OpenStream, EndSession}
    versions = {each.call.version for each in sent[1:] if not isinstance(each.call, McpRefusal)}
    assert versions == {ProtocolVersion.V2025_11_25}


async def test_a_client_without_a_session_is_understood() -> None:
    sent = await traffic("auto", everything)
    assert seen(sent) == [("server/discover", "", True), *USED]
    assert {each.status for each in sent} == {200}
    versions = {each.call.version for each in sent if not isinstance(each.call, McpRefusal)}
    assert versions == {ProtocolVersion.V2026_07_28}


async def test_the_arguments_are_those_of_the_user() -> None:
    arguments = {"a": 1, "b": 2, "deep": {"list": [1, "x", None, {"y": True}], "text": "\u00e9\n"}}

    async def use(client: Client) -> None:
        await client.call_tool("add", arguments)

    for mode in ("legacy", "auto"):
        calls = [each.call for each in await traffic(mode, use)]
        assert [call.arguments for call in calls if isinstance(call, ToolCall)] == [arguments]


FILLED: Final[dict[str, dict[str, Any]]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
    "completion/complete": {
        "ref": {"type": "ref/prompt", "name": "hello"},
        "argument": {"name": "name", "value": "x"},
    },
    "logging/setLevel": {"level": "info"},
    "prompts/get": {"name": "hello"},
    "resources/read": {"uri": "x://notes"},
    "resources/subscribe": {"uri": "x://notes"},
    "resources/unsubscribe": {"uri": "x://notes"},
    "tools/call": {"name": "add", "arguments": {"a": 1}},
    "subscriptions/listen": {"notifications": {}},
    "notifications/cancelled": {"requestId": 1},
    "notifications/progress": {"progressToken": 1, "progress": 0.5},
}
ABOUT: Final = {"tools/call": "add", "prompts/get": "hello", "resources/read": "x://notes"}
META: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.parametrize(("method", "version"), [*CLIENT_REQUESTS, *CLIENT_NOTIFICATIONS])
def test_every_message_of_the_sdk_s_models_is_read(method: str, version: str) -> None:
    model = {**CLIENT_REQUESTS, **CLIENT_NOTIFICATIONS}[method, version]
    modern = version == "2026-07-28"
    notifies = method.startswith("notifications/")
    given = {**FILLED.get(method, {}), **({"_meta": META} if modern and not notifies else {})}
    body = {
        "jsonrpc": "2.0",
        "method": method,
        **({} if notifies else {"id": 1}),
        **({"params": given} if given else {}),
    }
    # The model has the last word about what its messages look like.
    sent = model.model_validate(body).model_dump(mode="json", by_alias=True, exclude_unset=True)
    mirrored = (("mcp-method", method), *((("mcp-name", ABOUT[method]),) if method in ABOUT else ())) if modern else ()
    call = post({**body, **sent}, ("mcp-protocol-version", version), *mirrored)
    assert not isinstance(call, McpRefusal)
    assert (method_of(call), call.version) == (method, version)
    assert isinstance(call, Notification) is notifies


@pytest.mark.parametrize("text", ["add", "caf\u00e9", " add", "a\tb", "=?base64?YWRk?=", "\u65e5\u672c", ""])
def test_names_in_headers_are_decoded_as_the_sdk_encodes_them(text: str) -> None:
    header = encode_header_value(text)
    assert decode_value(header) == decode_header_value(header) == text


def test_what_the_sdk_s_server_refuses_as_a_mismatch_we_refuse_as_well() -> None:
    for name in ("add", "Add", "evil", "=?base64?YWRk?=", "=?base64?YWRl?=", "=?base64?YWR?=", "", " add"):
        body = message(params={"name": "add", "_meta": META})
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
        theirs = classify_inbound_request(body, headers=headers)
        ours = newest("tools/call", {"name": "add"}, name=name)
        refused = isinstance(theirs, InboundLadderRejection)
        assert isinstance(ours, McpRefusal) is refused
        if isinstance(theirs, InboundLadderRejection) and isinstance(ours, McpRefusal):
            assert ours.code == theirs.code == mcp_types.HEADER_MISMATCH
