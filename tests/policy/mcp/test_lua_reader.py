"""The reader inside Envoy: what it calls plain, the policy server's reader accepts with the same meaning."""

import json
from typing import Any, Final

import pytest
from tests.support.mcp.generated_messages import Messages, Request, disagreement
from tests.support.mcp.lua_reader import SOURCE, LuaReader
from tests.support.mcp.posted_messages import message

from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.mcp.message_limits import DEFAULT_LIMITS
from authplane.policy.mcp.methods import ABOUT_NOTHING, NAMES, NOTIFICATIONS
from authplane.policy.mcp.mirrored_headers import VERSION_MEMBER

CASES: Final = 50_000
JSON: Final = ("content-type", "application/json")
READER: Final = LuaReader()


def read(body: Any, *headers: tuple[str, str], path: str = "/mcp", arguments: tuple[str, ...] = ()) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    request = Request("POST", (JSON, *headers), path, data, arguments)
    assert disagreement(READER, request) == ""
    return READER.read(request.method, request.headers, request.path, request.body, request.arguments)


@pytest.mark.slow
@pytest.mark.requirement("M05", "E19")
def test_every_plain_message_means_the_same_to_the_policy_server() -> None:
    requests = [Messages(number).request() for number in range(CASES)]
    assert [said for each in requests if (said := disagreement(READER, each))] == []
    plain = sum(READER.read(each.method, each.headers, each.path, each.body) is not None for each in requests[:5_000])
    assert plain > 1_500


FAULTS: Final = {
    b"if seen[name] then return nil end": b"",
    b"if not last or escaped then return nil end": b"if not last then return nil end",
    b"return at and skip_blanks(at) == #whole + 1": b"return at",
    b"if is_lookalike(name) then return nil end": b"",
    b"if told ~= nil and told ~= front": b"if false and told ~= front",
    b"if front[name] then return nil end": b"",
    b"code < 32": b"code < 9",
    b"(first == 237 and second > 159)": b"false",
    b"    arguments = wanted and {}\n  end": b"  end",
    b"if is_wanted_lookalike(name) then return nil end": b"",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", FAULTS)
def test_the_cases_find_a_reader_that_takes_too_much(line: bytes) -> None:
    assert SOURCE.count(line) == 1
    faulty = LuaReader(source=SOURCE.replace(line, FAULTS[line]))
    assert any(disagreement(faulty, Messages(number).request()) for number in range(300_000))


@pytest.mark.parametrize("method", sorted({*NAMES, *ABOUT_NOTHING}))
@pytest.mark.parametrize("version", ProtocolVersion)
def test_messages_of_every_version_are_plain(method: str, version: ProtocolVersion) -> None:
    member = NAMES.get(method)
    params: dict[str, Any] = {} if member is None else {member: "it"}
    headers = [("mcp-protocol-version", version.value), ("mcp-session-id", "s-1")]
    if version is ProtocolVersion.V2026_07_28:
        params["_meta"] = {VERSION_MEMBER: version.value}
        headers += [("mcp-method", method), *([("mcp-name", "it")] if member in {"name", "uri"} else ())]
        headers = [each for each in headers if each[0] != "mcp-name" or method in _NAMED]
    id_ = {} if method.startswith(NOTIFICATIONS) else {"id": 7}
    found = read({"jsonrpc": "2.0", **id_, "method": method, "params": params}, *headers)
    wanted = {"method": method, "subject": "it" if member else "", "version": version.value, "session": "s-1"}
    assert found == wanted | ({"id": "7"} if id_ else {})


_NAMED: Final = ("tools/call", "prompts/get", "resources/read")

PLAIN: Final[dict[str, Any]] = {
    "numbers": message(params={"name": "add", "arguments": {"a": [0, -1, 1.5, 1e3, -0.0, 123456789012345]}}),
    "texts": message(params={"name": "add", "arguments": {"a": 'é\n"\\/ \U0001f600'}}),
    "texts in UTF-8": json.dumps(
        message(params={"name": "add", "arguments": {"é": "é€😀"}}), ensure_ascii=False
    ).encode(),
    "blanks": b' \t\r\n{ "jsonrpc" : "2.0" , "id" : 1 , "method" : "ping" , "params" : { } } \n',
    "no arguments": message(params={"name": "add"}),
    "null arguments": message(params={"name": "add", "arguments": None}),
    "an id with escapes": b'{"jsonrpc":"2.0","id":"a\\n\\u00e9","method":"ping"}',
    "an odd number as id": b'{"jsonrpc":"2.0","id":-0,"method":"ping"}',
    "an unknown method": message("custom/method", {}),
    "a completion": message("completion/complete", {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {}}),
    "deep": message(params={"name": "add", "arguments": {"a": json.loads("[" * 61 + "]" * 61)}}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_clients_send_is_plain(name: str) -> None:
    assert read(PLAIN[name]) is not None


BODY: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":%b}}}'
ODD_VALUES: Final = (
    b"", b"[1,]", b"[,1]", b"[1 2]", b'{"a":1,}', b'{"a" 1}', b"{a:1}", b"{1:1}", b"'a'", b"01", b"-01", b"1.", b".1",
    b"+1", b"-", b"1e", b"1e+", b"0x1", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1234567890123456", b"nul",
    b"tru", b"True", b"undefined", b'"\t"', b'"\x00"', b'"\\x"', b'"\\u12"', b'"\\u00zz"', b'"\\ud800"',
    b'"\\udc00\\ud800"', b'"\\u0000"', b'"\xff"', b'"\xc0\x80"', b'"\xe0\x80\x80"', b'"\xed\xa0\x80"',
    b'"\xf4\x90\x80\x80"', b'"\xf0\x80\x80\x80"', b'"\xc3"', b'"a', b"[", b"]", b"{", b"}", b'{"b":1,"b":2}',
    b'{"b":1,"\\u0062":2}', b"/**/1", b"1//", b"\xef\xbb\xbf1", b"\x0b1", b"\xc2\xa01", b"[" * 62 + b"]" * 62,
    b"[" + b"1," * 10_000 + b"1]", b"1}}}{", b'1,"b"', b"1 1", b"*",
)  # fmt: skip


@pytest.mark.parametrize("value", ODD_VALUES)
def test_what_parsers_read_differently_is_not_plain(value: bytes) -> None:
    assert read(BODY % value) is None


ODD_MESSAGES: Final = (
    b"", b"[]", b"null", b'"a"', b"1", b"[%b]" % (BODY % b"1"), BODY % b"1" + b"x", BODY % b"1" + BODY % b"1",
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}', b'{"id":1,"method":"ping"}', b'{"jsonrpc":"2.0","method":"ping"}',
    b'{"jsonrpc":"2.0","id":null,"method":"ping"}', b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}', b'{"jsonrpc":"2.0","id":1,"method":"PING"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","Params":{}}', b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', b'{"jsonrpc":"2.0","id":1,"method":"p\\u0069ng"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a\\u0062"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","NAME":"delete"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":[]}}',
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
)  # fmt: skip


@pytest.mark.parametrize("body", ODD_MESSAGES)
def test_what_is_no_plain_message_is_not_plain(body: bytes) -> None:
    assert read(body) is None


ODD_HEADERS: Final = (
    ("content-type", "application/json"), ("content-encoding", "gzip"), ("mcp-protocol-version", "2027-01-01"),
    ("mcp-method", "tools/list"), ("mcp-name", "delete"), ("mcp-name", "=?base64?YWRk?="), ("mcp-session-id", "a,b"),
    ("mcp_session_id", "a"), ("authorization", "Bearer a,Bearer b"), ("upgrade", "websocket"),
    ("connection", "Upgrade"), ("x-http-method-override", "GET"), ("x_http_method_override", "GET"),
    (":protocol", "websocket"), ("content-length", "5"), ("x-envoy-auth-partial-body", "true"),
)  # fmt: skip


@pytest.mark.parametrize("header", ODD_HEADERS)
def test_odd_headers_make_a_message_not_plain(header: tuple[str, str]) -> None:
    assert read(message()) is not None
    assert read(message(), header) is None


@pytest.mark.parametrize("path", ["//mcp", "/a/../mcp", "/a/.", "/%6dcp", "/a;b", "/a\\b", "mcp", ""])
def test_odd_paths_make_a_message_not_plain(path: str) -> None:
    assert read(message(), path=path) is None


def test_a_message_up_to_the_limit_is_plain() -> None:
    body = BODY % b'"%b"'
    longest = DEFAULT_LIMITS.body - len(body % b"")
    assert read(body % (b"a" * longest)) is not None
    assert read(body % (b"a" * (longest + 1))) is None
    assert LuaReader(most_bytes=100).read("POST", [JSON], "/mcp", body % (b"a" * 10)) is None


# --- Arguments


def arguments(given: dict[str, Any], *wanted: str) -> Any:
    found = read(message(params={"name": "add", "arguments": given}), arguments=wanted)
    return None if found is None else {name: value for name, value in found["params"].items() if name}


@pytest.mark.parametrize("value", ["a", "", 'é\n"\\\U0001f600', 0, -1, 1.5, 1e300, 999999999999999, True, False])
def test_rules_see_the_arguments_that_they_read(value: object) -> None:
    assert arguments({"a": value, "b": [1]}, "a", "c") == {"a": value}


@pytest.mark.parametrize("value", [None, [], [1], {}, {"b": 1}, 2**53 + 1])
def test_other_values_of_arguments_that_rules_read_are_not_plain(value: object) -> None:
    assert arguments({"a": value}, "a") is None
    assert arguments({"a": 1, "b": 1}, "a") == {"a": 1}


@pytest.mark.parametrize("name", ["TO", "To", " to", "to ", "\u200bto", "\uff54\uff4f", "to\u0301"])
def test_an_argument_that_looks_like_one_that_rules_read_is_not_plain(name: str) -> None:
    assert arguments({"to": "alice", name: "mallory"}, "to") is None
    assert read(message(params={"name": "add", "arguments": {"to": "alice", name: "mallory"}})) is not None


def test_params_of_other_methods_that_rules_read_are_not_plain() -> None:
    assert read(message("custom", {"a": 1}), arguments=("a",)) is None
    assert read(message("custom", {"b": 1}), arguments=("a",))["params"] == {"": True}


@pytest.mark.parametrize("name", ['"', "\\", "\n", "\x7f", "é", "a\u202eb", '","code":0,"x":"', "\ud83d\ude00"])
def test_names_and_methods_that_json_text_would_have_to_escape_are_not_plain(name: str) -> None:
    # Envoy writes them into the JSON text of a denial as they are.
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": f"a{name}"}}
    for body in (call, {"jsonrpc": "2.0", "id": 1, "method": f"tools/a{name}"}):
        for ascii_only in (True, False):
            data = json.dumps(body, ensure_ascii=ascii_only).encode(errors="surrogatepass")
            assert read(data) is None
