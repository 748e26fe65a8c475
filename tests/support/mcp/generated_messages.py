"""Requests to MCP servers: what clients send, what nobody honest sends, and what is left of both after damage."""

import json
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.support.mcp.json_texts import INVALID, UNUSUAL, VALID
from tests.support.mcp.lua_reader import LuaReader

from authplane.cel.syntax.read_members import NOTHING, Members
from authplane.policy.mcp.arguments import unambiguous
from authplane.policy.mcp.expression_context import mcp_context
from authplane.policy.mcp.mcp_calls import MethodCall, Notification, ToolCall, id_of, method_of
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.mcp.methods import ABOUT_NOTHING, NAMES
from authplane.policy.mcp.mirrored_headers import VERSION_MEMBER
from authplane.policy.mcp.read_request import read_mcp


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


_METHODS: Final = (*sorted(ABOUT_NOTHING), *sorted(NAMES), "completion/complete", *["tools/call"] * 20)
_ODD_METHODS: Final = (
    "Tools/Call",
    "tools/c\u0430ll",
    "x",
    "",
    " tools/call",
    "x" * 128,
    "x" * 129,
    "custom/a",
    "é",
    "a b",
)
_VERSIONS: Final = tuple(each.value for each in ProtocolVersion)
_NAMES: Final = ("add", "delete_note", "a b", "é", "", "x" * 256, "x" * 257, "a\\b", 'a"b', "\x7f", "a/b", "\U0001f600")
_MEMBERS: Final = (
    "jsonrpc", "id", "method", "params", "result", "error", "name", "uri", "arguments", "ref", "taskId", "_meta",
    "NAME", "Method", "ID", "naMe", "name ", " name", "name\0", "ﬁd", "\uff2eame", "nåme", "\u017f", "taskid",
    "params\u200b", "", "x", "x.name", "é", VERSION_MEMBER, VERSION_MEMBER.upper(), "progressToken", "type",
)  # fmt: skip
_WANTED: Final = ("a", "b", "c", "d", "name", "x", "id")
_NUMBERS: Final = (
    "0", "-0", "1", "-1", "1.0", "1e3", "1E+3", "1e400", "-1e400", "1e-400", "00", "01", "-", "+1", ".5", "1.",
    "1.e1", "0x10", "1" * 15, "9007199254740993", "1" * 24, "1" * 25, "1" * 31, "1" * 32, "0.1e", "NaN", "Infinity",
    "-Infinity", "1" * 30 + "." + "1" * 30, "nan", "1_0", "\uff11",
)  # fmt: skip
_TEXTS: Final = (
    '"a"', '""', '"é"', '"\\n"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00\\ud83d"', '"\\u0000"',
    '"\\x41"', '"\\/"', '"\\"', "'a'", '"\t"', '"\x7f"', '"\u2028"', '"\ufeff"', '"\\u12"', '"a', "a",
    '"\\uD83D\\u0041"', '"\\U0041"',
)  # fmt: skip
_LITERALS: Final = ("null", "true", "false", "nul", "True", "nulll", "undefined", "[]", "{}", "[,]", "{,}", "[1,]")
_COMMON: Final = tuple(each.decode() for each in (*VALID, *UNUSUAL, *INVALID) if len(each) < 100 and _is_utf8(each))
_SCALARS: Final = (*_NUMBERS, *_TEXTS, *_LITERALS, *_COMMON)
_BLANKS: Final = ("", "", "", "", " ", "\n", "\t\r\n ", "\v", "\u00a0", "\ufeff", "/**/", "\0")
_TYPES: Final = (
    "application/json", "application/json; charset=utf-8", 'application/json;charset="UTF-8"', "application/json;",
    "Application/JSON", "text/plain", "application/json; charset=utf-16", "application/json, application/json",
)  # fmt: skip
_PATHS: Final = (
    "/mcp", "/", "/a/b/", "/mcp?x=/../", "//mcp", "/a//b", "/a/../b", "/a/./b", "/a/..", "/.", "/..a", "/%20", "/%2e",
    "/a;b", "/é", "", "mcp", "/a\\b", "/%zz", "/a#b", "/(x)", "/a%",
)  # fmt: skip
_DAMAGE: Final = (
    b'"', b"\\", b"{", b"}", b",", b"0", b"\0", b"\xc0", b"\xed\xa0\x80", b"\xc0\x80", b"\xe0\x80\x80",
    b"\xf4\x90\x80\x80", b"\xf0\x80\x80\x80", b"\xc3\xa9", b"\x7f", b"\x1f",
)  # fmt: skip
_HEADERS: Final = (
    ("mcp-session-id", "s-1"), ("mcp-session-id", "a,b"), ("mcp-session-id", "é"), ("mcp-session-id", ""),
    ("mcp_session_id", "s"), ("last-event-id", "1"), ("last-event-id", "1,2"), ("authorization", "Bearer a"),
    ("authorization", "Bearer a,Bearer b"), ("content-encoding", "gzip"), ("content-encoding", ""), ("upgrade", "h2c"),
    ("connection", "keep-alive"), ("connection", "Upgrade"), ("x-http-method-override", "GET"), ("http2-settings", ""),
    ("x_http_method", "GET"), ("x-envoy-auth-partial-body", "false"), ("x-envoy-auth-partial-body", "true"),
    (":protocol", "websocket"), ("transfer-encoding", "chunked"), ("x-other_header", "1"), ("content_type", "a"),
    ("mcp-name", "=?base64?YWRk?="), ("mcp-name", "=?base64?YWRk"), ("accept", "*/*"), ("mcp-protocol-version", "1.0"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    headers: tuple[tuple[str, str], ...]
    path: str
    body: bytes
    arguments: tuple[str, ...] = ()
    """What rules read of tool arguments."""


class Messages:
    """Makes requests; the same number makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)  # noqa: S311 (the same cases every time)

    def request(self) -> Request:
        """Return a request: plain more often than not, odd in one or more places otherwise."""
        chance = self._chance
        method = chance.choice(_METHODS) if self._mostly() else chance.choice(_ODD_METHODS)
        version = chance.choice(_VERSIONS)
        subject = chance.choice(_NAMES[:2]) if self._mostly() else chance.choice(_NAMES)
        headers = self._headers(method, version, subject)
        body = self._message(method, version, subject).encode("utf-8", "surrogatepass")
        path = "/mcp" if self._mostly() else chance.choice(_PATHS)
        wanted = tuple(chance.sample(_WANTED, chance.randint(1, 3))) if chance.random() < 0.5 else ()
        return Request("POST" if self._nearly_always() else "GET", headers, path, self._damaged(body), wanted)

    def _mostly(self) -> bool:
        return self._chance.random() < 0.9

    def _nearly_always(self) -> bool:
        return self._chance.random() < 0.98

    def _headers(self, method: str, version: str, subject: str) -> tuple[tuple[str, str], ...]:
        kind = _TYPES[0] if self._nearly_always() else self._chance.choice(_TYPES)
        made = [("content-type", kind)]
        if self._chance.random() < 0.8 or version == ProtocolVersion.V2026_07_28:
            made.append(("mcp-protocol-version", version))
        if self._chance.random() < (0.95 if version == ProtocolVersion.V2026_07_28 else 0.1):
            made.append(("mcp-method", method))
            if method in {"tools/call", "prompts/get", "resources/read"} and self._nearly_always():
                made.append(("mcp-name", subject))
        while self._chance.random() < 0.1:
            made.append(self._chance.choice(_HEADERS))
        self._chance.shuffle(made)
        return tuple(made)

    def _message(self, method: str, version: str, subject: str) -> str:
        """Write a message member by member, so that each can be written in an odd way."""
        params = self._params(method, version, subject)
        members = [("jsonrpc", '"2.0"' if self._nearly_always() else self._scalar()), ("method", json.dumps(method))]
        if not method.startswith("notifications/") or not self._mostly():
            members.append(("id", str(self._chance.randrange(1000)) if self._mostly() else self._scalar()))
        if params or self._chance.random() < 0.5:
            members.append(("params", self._object(params) if self._nearly_always() else self._scalar()))
        return self._object(self._odd(members), blank=True)

    def _params(self, method: str, version: str, subject: str) -> list[tuple[str, str]]:
        made = []
        if method in NAMES and self._nearly_always():
            made.append((NAMES[method], json.dumps(subject, ensure_ascii=self._mostly())))
        if method == "completion/complete":
            kind = self._chance.choice((("ref/prompt", "name"), ("ref/resource", "uri"), ("ref/other", "name")))
            made.append(("ref", self._object(self._odd([("type", f'"{kind[0]}"'), (kind[1], json.dumps(subject))]))))
        if method == "tools/call" and self._mostly():
            made.append(("arguments", self._value(3) if self._chance.random() < 0.1 else self._object(self._few(3))))
        if version == ProtocolVersion.V2026_07_28 or self._chance.random() < 0.1:
            said = version if self._nearly_always() else self._chance.choice(_VERSIONS)
            meta = self._object(self._odd([(VERSION_MEMBER, json.dumps(said)), ("progressToken", "1")]))
            made.append(("_meta", meta if self._nearly_always() else self._scalar()))
        return self._odd(made)

    def _odd(self, members: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Add members that nobody expects, now and then."""
        while self._chance.random() < 0.04:
            place = self._chance.randint(0, len(members))
            members.insert(place, (self._chance.choice(_MEMBERS), self._value(2)))
        return members

    def _few(self, depth: int) -> list[tuple[str, str]]:
        names = self._chance.sample("abcdef", self._chance.randrange(4))
        return self._odd([(name, self._value(depth - 1)) for name in names])

    def _object(self, members: list[tuple[str, str]], *, blank: bool = False) -> str:
        inner = ",".join(f"{self._name(name)}{self._blank()}:{self._blank()}{value}" for name, value in members)
        outside = self._blank() if blank else ""
        return f"{outside}{{{inner}}}{outside}"

    def _name(self, name: str) -> str:
        if self._chance.random() < 0.005:
            return "".join(['"', *(f"\\u{ord(each):04x}" for each in name), '"'])
        return json.dumps(name, ensure_ascii=False) if self._nearly_always() else json.dumps(name)

    def _blank(self) -> str:
        return "" if self._nearly_always() else self._chance.choice(_BLANKS)

    def _value(self, depth: int) -> str:
        choice = self._chance.random()
        if depth <= 0 or choice < 0.6:
            return self._scalar()
        if choice < 0.8:
            return self._object(self._few(depth))
        return "[" + ",".join(self._value(depth - 1) for _ in range(self._chance.randrange(4))) + "]"

    def _scalar(self) -> str:
        """Return a plain value nearly always."""
        if self._nearly_always():
            return self._chance.choice(("1", "2.5", "true", "null", '"text"', '"zwölf"', '"a\\nb"', "-7", "[]", "{}"))
        return self._chance.choice(_SCALARS)

    def _damaged(self, body: bytes) -> bytes:
        """Change some bytes, now and then."""
        if self._chance.random() > 0.15:
            return body
        data = bytearray(body)
        for _ in range(self._chance.randint(1, 3)):
            place = self._chance.randrange(len(data) + 1)
            match self._chance.randrange(4):
                case 0:
                    data[place:place] = self._chance.randbytes(1)
                case 1:
                    del data[place : place + self._chance.randint(1, 4)]
                case 2:
                    data[place : place + 1] = self._chance.choice(_DAMAGE)
                case _:
                    start = self._chance.randrange(len(data) + 1)
                    data[place:place] = data[start : start + self._chance.randint(1, 30)]
        return bytes(data)


def disagreement(reader: LuaReader, request: Request) -> str:
    """Say in what the reader inside Envoy and the policy server's differ about a message that the first calls plain."""
    plain = reader.read(request.method, request.headers, request.path, request.body, request.arguments)
    if plain is None:
        return ""
    said = _understood(request)
    return "" if said == plain else f"plain {plain}, but the policy server reads {said}: {request}"


def _understood(request: Request) -> dict[str, Any] | str:
    """Return what the policy server makes of a request, in the words of the reader inside Envoy."""
    path = request.path.partition("?")[0]
    call = read_mcp(request.method, request.headers, path, request.body, complete=True)
    if not isinstance(call, McpRefusal):
        call = unambiguous(call, Members(dict.fromkeys(request.arguments, NOTHING)))
    match call:
        case ToolCall(name=subject) | MethodCall(subject=subject):
            pass
        case Notification():
            subject = ""
        case _:
            return str(call)
    said: dict[str, Any] = {
        "subject": subject,
        "method": method_of(call),
        "version": call.version.value,
        "session": call.session,
    }
    if id_of(call) is not None:
        said["id"] = id_of(call)
    if request.arguments:
        seen = mcp_context(call)
        if not isinstance(seen, dict):
            return seen
        said["params"] = {name: each for name, each in seen["params"].items() if name in request.arguments} | {"": True}
    return said
