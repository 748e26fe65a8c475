import gzip
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from tests.support.mcp.posted_messages import ACCEPT, JSON, argument, encode, fault, message, post

from authplane.policy.mcp.mcp_calls import EndSession, McpCall, OpenStream, ToolCall, id_of, method_of
from authplane.policy.mcp.mcp_refusal import Fault, McpRefusal
from authplane.policy.mcp.mcp_versions import ASSUMED, ProtocolVersion
from authplane.policy.mcp.message_limits import McpLimits
from authplane.policy.mcp.read_request import read_mcp

V2025_11_25: Final = ProtocolVersion.V2025_11_25


class Http(NamedTuple):
    headers: tuple[tuple[str, str], ...]
    want: Fault | None
    status: int = 400


TYPES_OF_CONTENT: Final = {
    "application/json": None,
    "application/json; charset=utf-8": None,
    "application/json;charset=UTF-8": None,
    'application/json; charset="utf-8"': None,
    "application/json; charset=utf-16": Fault.CONTENT_TYPE,
    "application/json; charset=utf-8; charset=utf-16": Fault.CONTENT_TYPE,
    "application/json; charset=iso-8859-1": Fault.CONTENT_TYPE,
    "application/json-patch+json": Fault.CONTENT_TYPE,
    "application/jsonx": Fault.CONTENT_TYPE,
    "application/vnd.api+json": Fault.CONTENT_TYPE,
    "Application/JSON": Fault.CONTENT_TYPE,
    "application/json,application/json": Fault.CONTENT_TYPE,
    "application/json\n": Fault.CONTENT_TYPE,
    "text/plain": Fault.CONTENT_TYPE,
    "text/json": Fault.CONTENT_TYPE,
    "multipart/form-data; boundary=x": Fault.CONTENT_TYPE,
    "application/x-www-form-urlencoded": Fault.CONTENT_TYPE,
    "": Fault.CONTENT_TYPE,
}


@pytest.mark.requirement("M04", "P11", "P12")
@pytest.mark.parametrize(("content_type", "want"), TYPES_OF_CONTENT.items())
def test_a_body_is_json_in_utf_8_and_says_so(content_type: str, want: Fault | None) -> None:
    body = encode(message())
    assert fault(read_mcp("POST", [("content-type", content_type)], "/mcp", body, complete=True)) is want
    absent = read_mcp("POST", [ACCEPT], "/mcp", body, complete=True)
    assert absent == McpRefusal(http_status=415, code=-32600, fault=Fault.CONTENT_TYPE, id="1")
    twice = read_mcp("POST", [JSON, ("content-type", content_type)], "/mcp", body, complete=True)
    assert fault(twice) is Fault.HEADER_REPEATED


@pytest.mark.requirement("M05", "P10")
@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "identity", "x-unknown", ""])
def test_a_body_in_another_coding_is_refused(coding: str) -> None:
    refused = McpRefusal(http_status=415, code=-32600, fault=Fault.ENCODED_BODY)
    assert post(gzip.compress(encode(message())), ("content-encoding", coding)) == refused
    assert post(message(), ("content-encoding", coding)) == replace(refused, id="1")


@pytest.mark.requirement("P13", "M17")
def test_a_body_over_the_limit_is_refused_and_never_cut() -> None:
    def padded(size: int) -> bytes:
        body = encode(message())
        return body + b" " * (size - len(body))

    refused = McpRefusal(http_status=413, code=-32600, fault=Fault.BODY_TOO_LARGE)
    assert isinstance(post(padded(65_536)), ToolCall)
    assert post(padded(65_537)) == refused
    assert isinstance(post(padded(1024 * 1024), limits=McpLimits(body=1024 * 1024)), ToolCall)
    # A proxy that sends no body beyond its own limit leaves us with the length alone.
    assert post(b"", ("content-length", "65537")) == refused
    assert post(b"", ("content-length", "9" * 5000)) == McpRefusal(
        http_status=413, code=-32600, fault=Fault.BODY_TRUNCATED
    )
    assert fault(post(argument(f"[{','.join('1' * 1_000_000)}]"))) is Fault.BODY_TOO_LARGE
    for size in (0, -1, 1024 * 1024 + 1):
        with pytest.raises(ValueError, match="1 to 1048576"):
            McpLimits(body=size)


@pytest.mark.requirement("M06")
def test_only_a_whole_body_is_judged() -> None:
    refused = McpRefusal(http_status=413, code=-32600, fault=Fault.BODY_TRUNCATED)
    body = encode(message())
    assert post(body, complete=False) == refused
    assert post(body, ("content-length", str(len(body) + 1))) == refused
    assert post(body, ("content-length", str(len(body) - 1))) == refused
    assert post(body, ("content-length", f"+{len(body)}")) == refused
    assert post(b"", complete=False) == refused
    assert isinstance(post(body, ("content-length", str(len(body)))), ToolCall)
    assert isinstance(post(body, ("transfer-encoding", "chunked"), ("expect", "100-continue")), ToolCall)


GET: Final = (
    ACCEPT,
    ("content-type", "application/json"),
    ("mcp-session-id", "s1"),
    ("mcp-protocol-version", "2025-11-25"),
)


def bodiless(method: str, *headers: tuple[str, str], body: bytes = b"") -> McpCall | McpRefusal:
    return read_mcp(method, headers, "/mcp", body, complete=True)


@pytest.mark.requirement("M14")
def test_get_opens_a_stream_delete_ends_a_session_and_post_has_a_body() -> None:
    assert bodiless("GET", *GET) == OpenStream(version=V2025_11_25, session="s1")
    for kind in ("text/event-stream", "text/*", "*/*", "x/y, */*;q=0.1", "TEXT/*"):
        assert bodiless("GET", ("accept", kind)) == OpenStream(version=ASSUMED)
    assert bodiless("GET", ("accept", "text/html"), ("accept", "x/y, TEXT/event-stream;q=1")) == OpenStream(
        version=ASSUMED
    )
    assert bodiless("DELETE", *GET) == EndSession(version=V2025_11_25, session="s1")
    assert bodiless("DELETE", ACCEPT) == McpRefusal(http_status=400, code=-32600, fault=Fault.SESSION)
    for accept in ((), (("accept", "application/json"),), (("accept", "text/event-streams"),), (("accept", "*/"),)):
        assert bodiless("GET", *accept) == McpRefusal(http_status=406, code=-32600, fault=Fault.NOT_ACCEPTABLE)
    assert post(b"") == McpRefusal(http_status=400, code=-32600, fault=Fault.BODY_MISSING)
    assert post(b"", ("content-length", "0")) == McpRefusal(http_status=400, code=-32600, fault=Fault.BODY_MISSING)
    for call in (bodiless("GET", *GET), bodiless("DELETE", *GET)):
        assert not isinstance(call, McpRefusal)
        assert (method_of(call), id_of(call)) == ("", None)


@pytest.mark.requirement("P17")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_get_and_delete_have_no_body(method: str) -> None:
    refused = McpRefusal(http_status=400, code=-32600, fault=Fault.BODY_UNEXPECTED)
    assert bodiless(method, *GET, body=encode(message())) == refused
    assert bodiless(method, *GET, body=b" ") == refused
    assert bodiless(method, *GET, ("transfer-encoding", "chunked")) == refused
    assert fault(bodiless(method, *GET, ("content-length", "12"))) is Fault.BODY_TRUNCATED
    assert fault(bodiless(method, *GET, ("content-length", "0"))) is None


@pytest.mark.parametrize("method", ["PUT", "PATCH", "OPTIONS", "HEAD", "TRACE", "CONNECT", "post", "PoSt", "", "POST "])
def test_other_methods_are_not_allowed(method: str) -> None:
    outcome = read_mcp(method, [ACCEPT, JSON], "/mcp", encode(message()), complete=True)
    assert outcome == McpRefusal(http_status=405, code=-32600, fault=Fault.HTTP_METHOD)


PATHS: Final = {
    "/mcp": True,
    "/": True,
    "/mcp/": True,
    "/a.b/..c/d..": True,
    "/caf%C3%A9/a%20b": True,
    "": False,
    "mcp": False,
    "//mcp": False,
    "/a//b": False,
    "/a/./b": False,
    "/a/../b": False,
    "/a/..": False,
    "/.": False,
    "/a/%2e%2e/b": False,
    "/a%2fb": False,
    "/a%5cb": False,
    "/a\\b": False,
    "/a;x=1": False,
    "/a#b": False,
    "/a?b": False,
    "/a%00": False,
    "/a%": False,
    "/a%zz": False,
    "/%6dcp": False,
    "/a\n": False,
    "/a b": False,
    "/\u00e9": False,
    "http://host/mcp": False,
    "*": False,
}


HEADERS: Final = {
    "an override of the method": Http((("x-http-method-override", "GET"),), Fault.METHOD_OVERRIDE),
    "an override under another name": Http((("x-http-method", "GET"),), Fault.METHOD_OVERRIDE),
    "an override under a third name": Http((("x-method-override", "GET"),), Fault.METHOD_OVERRIDE),
    "an override with underscores": Http((("x_http_method_override", "GET"),), Fault.HEADER_MISSPELT),
    "an override in capitals": Http((("X-HTTP-Method-Override", "GET"),), Fault.METHOD_OVERRIDE),
    "two content types": Http((("content-type", "application/json"),), Fault.HEADER_REPEATED),
    "two content types, one misspelt": Http((("content_type", "text/plain"),), Fault.HEADER_MISSPELT),
    "two tokens": Http((("authorization", "Bearer a"), ("authorization", "Bearer b")), Fault.HEADER_REPEATED),
    "two sessions": Http((("mcp-session-id", "a"), ("Mcp-Session-Id", "a")), Fault.HEADER_REPEATED),
    "two versions": Http((("mcp-protocol-version", "2025-11-25"),) * 2, Fault.HEADER_REPEATED),
    "two names": Http((("mcp-name", "add"), ("mcp-name", "evil")), Fault.HEADER_REPEATED),
    "two lengths": Http((("content-length", "1"), ("content-length", "2")), Fault.HEADER_REPEATED),
    "a session that is none": Http((("mcp-session-id", "a b"),), Fault.SESSION),
    "an empty session": Http((("mcp-session-id", ""),), Fault.SESSION),
    "one token": Http((("authorization", "Bearer a"),), None),
    "several values of others": Http((("x-a", "1"), ("x-a", "2"), ("x_b", "3"), ("accept", "*/*")), None),
}


@pytest.mark.requirement("P16")
@pytest.mark.parametrize("case", HEADERS.values(), ids=HEADERS.keys())
def test_headers_and_paths_that_readers_disagree_on_are_refused(case: Http) -> None:
    assert fault(post(message(), *case.headers)) is case.want
    assert {path: fault(post(message(), path=path)) is not Fault.PATH for path in PATHS} == PATHS


@pytest.mark.parametrize(
    "header",
    [
        ("upgrade", "websocket"),
        ("Upgrade", "h2c"),
        ("upgrade", ""),
        ("connection", "Upgrade"),
        ("connection", "keep-alive, upgrade"),
        ("http2-settings", "AAMAAABk"),
        (":protocol", "websocket"),
    ],
)
def test_an_upgrade_is_refused_with_a_body_and_without(header: tuple[str, str]) -> None:
    refused = McpRefusal(http_status=400, code=-32600, fault=Fault.UPGRADE)
    assert post(message(), header) == replace(refused, id="1")
    assert post(b"", header) == refused
    assert bodiless("GET", *GET, header) == refused
    assert isinstance(post(message(), ("connection", "keep-alive")), ToolCall)
