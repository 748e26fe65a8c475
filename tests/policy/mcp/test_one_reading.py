"""Whatever we accept, readers of every kind read as we do."""

import json
import unicodedata
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic_core import from_json
from tests.support.mcp.posted_messages import message, post

from authplane.policy.mcp.mcp_calls import McpCall, MethodCall, Notification, ToolCall
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.mcp.mcp_versions import ProtocolVersion

# Readers. Each turns bytes into the method and, for a tool, its name.


def first_wins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


def folding(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Find members in any case, as Go does; the last one wins."""
    return {"taskId" if (folded := name.casefold()) == "taskid" else folded: value for name, value in pairs}


def compatible(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {unicodedata.normalize("NFKC", name).casefold(): value for name, value in pairs}


def cutting(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """End names at a NUL, as C does."""
    return {name.partition("\0")[0]: value for name, value in pairs}


def trimming(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name.strip().strip("\0"): value for name, value in pairs}


def lenient(data: bytes) -> Any:
    """Read the first value and ignore the rest, bad bytes and all."""
    return json.JSONDecoder(strict=False).raw_decode(data.decode(errors="replace").lstrip("\ufeff \t\r\n"))[0]


def with_pairs(pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> Callable[[bytes], Any]:
    return lambda data: json.loads(data, object_pairs_hook=pairs)


READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "the standard library": json.loads,
    "pydantic": from_json,
    "the first wins": with_pairs(first_wins),
    "Go": with_pairs(folding),
    "NFKC": with_pairs(compatible),
    "C": with_pairs(cutting),
    "one that trims": with_pairs(trimming),
    "one that takes anything": lenient,
}


def asked(value: Any) -> tuple[str, str]:
    params = value.get("params", {})
    return value["method"], params["name"] if value["method"] == "tools/call" else ""


def understood(call: McpCall) -> tuple[str, str] | None:
    match call:
        case ToolCall(name=name):
            return "tools/call", name
        case MethodCall(method=method) | Notification(method=method):
            return method, ""
        case _:
            return None


def check(body: bytes) -> bool:
    """Compare what we read with what the others read; tell whether there was something to compare."""
    call = post(body)
    if isinstance(call, McpRefusal) or understood(call) is None:
        return False
    assert {name: asked(reader(body)) for name, reader in READERS.items()} == dict.fromkeys(READERS, understood(call))
    return True


# Messages

NAMES: Final = st.sampled_from(
    [
        "jsonrpc", "id", "method", "params", "result", "error", "name", "uri", "arguments", "_meta", "x",
        "Method", "PARAMS", "Name", "nAME", "param\u017f", "name\0", "\0name", "na\u0301me", "name ", "\ufeffname",
        "\uff4eame", "i\u0307d", "\u0131d", "method\0x", "argument\u017f", "re\u017fult", "_Meta", "N\u0430me",
    ]
)  # fmt: skip
TOOLS: Final = st.sampled_from(["safe", "evil", "s\u00e4fe", "safe\0", "Safe", ""])
METHODS: Final = st.sampled_from(["tools/call", "ping", "tools/list", "Tools/call", "notifications/initialized"])
ODD: Final = st.one_of(st.none(), st.booleans(), st.integers(), TOOLS, METHODS, st.just([]), st.just({"name": "evil"}))


def escaped(draw: st.DrawFn, text: str) -> str:
    """Write a text as JSON, some letters escaped."""
    if not draw(st.booleans()):
        return json.dumps(text, ensure_ascii=draw(st.booleans()))
    units = text.encode("utf-16-be").hex()
    return '"' + "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)) + '"'


def written(draw: st.DrawFn, pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{escaped(draw, name)}:{value}" for name, value in pairs) + "}"


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Make a message that is right but for some members too many, some bytes too many, or some bytes changed."""
    extra = st.lists(st.tuples(NAMES, ODD.map(json.dumps)), max_size=2)
    params = [("name", escaped(draw, draw(TOOLS))), ("arguments", '{"a":1}'), *draw(extra)]
    top = [
        ("jsonrpc", '"2.0"'),
        ("id", "1"),
        ("method", escaped(draw, draw(METHODS))),
        ("params", written(draw, draw(st.permutations(params)))),
        *draw(extra),
    ]
    data = bytearray(written(draw, draw(st.permutations(top))).encode(errors="surrogatepass"))
    for _ in range(draw(st.integers(0, 2)) if draw(st.booleans()) else 0):
        at = draw(st.integers(0, len(data) - 1))
        noise = draw(st.sampled_from([b"", b"\0", b'"', b"\\", b"}", b",", b"\xff", b" ", b"[", b"N", b"\xef\xbb\xbf"]))
        data[at : at + draw(st.integers(0, 1))] = noise
    return bytes(data)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(bodies())
@example(json.dumps(message()).encode())
@example(json.dumps(message(**{"method\0x": None})).encode())
def test_what_is_accepted_has_one_reading(body: bytes) -> None:
    check(body)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    tool=st.text(min_size=1, max_size=40).filter(str.isprintable),
    arguments=st.dictionaries(st.text(max_size=8), st.one_of(st.integers(-(2**60), 2**60), st.text()), max_size=5),
)
def test_ordinary_calls_are_accepted_and_have_one_reading(tool: str, arguments: dict[str, Any]) -> None:
    call = post(message(params={"name": tool, "arguments": arguments}))
    assert call == ToolCall(id="1", name=tool, arguments=arguments, version=ProtocolVersion.V2025_03_26)
    assert check(json.dumps(message(params={"name": tool, "arguments": arguments})).encode())


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    body=st.binary(max_size=200),
    headers=st.lists(
        st.tuples(
            st.sampled_from(
                ["accept", "mcp-name", "mcp-method", "mcp-protocol-version", "connection", "content-length"]
            ),
            st.text(max_size=20),
        ),
        max_size=4,
    ),
    path=st.text(max_size=20),
)
def test_nothing_makes_it_raise(body: bytes, headers: list[tuple[str, str]], path: str) -> None:
    post(body, *headers, path=path)
    post(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + body + b"}", *headers)
    post(message(), *headers, path=f"/{path}")
