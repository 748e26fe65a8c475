"""Ways to spoil the body of a request: some readers of JSON would still find a message in most of them."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

Spoil = Callable[[bytes], bytes]

CONTENT_TYPES: Final = (
    None,
    "application/json; charset=utf-8",
    'application/json; charset="UTF-8"',
    "application/json;charset=utf-16",
    "application/json, text/plain",
    "Application/JSON",
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/json-rpc",
    "",
)


def _with(name: str, value: Any) -> Spoil:
    """Put a member before the others, so that it is there twice if they have it."""

    def spoil(body: bytes) -> bytes:
        return b"{" + json.dumps(name).encode() + b": " + json.dumps(value).encode() + b", " + body.lstrip()[1:]

    return spoil


def _after(name: str, value: Any) -> Spoil:
    def spoil(body: bytes) -> bytes:
        return body.rstrip()[:-1] + b", " + json.dumps(name).encode() + b": " + json.dumps(value).encode() + b"}"

    return spoil


def _swap(old: bytes, new: bytes) -> Spoil:
    return lambda body: body.replace(old, new, 1)


def _escaped(body: bytes) -> bytes:
    """Write the first letters of values as escapes: that is the same message."""
    return re.sub(rb'": "([a-z])', lambda found: b'": "\\u%04x' % found[1][0], body)


SPOILED_BODIES: Final[tuple[Spoil, ...]] = (
    lambda body: b"[" + body + b"]",
    lambda body: b"[" + body + b"," + body + b"]",
    lambda _: b"[]",
    lambda _: b"",
    lambda _: b"{}",
    lambda _: b"null",
    _with("method", "tools/list"),
    _after("method", "tools/list"),
    _after("params", {"name": "wipe"}),
    _with("Method", "tools/list"),
    _with("PARAMS", {"name": "wipe"}),
    _with("param\u017f", {"name": "wipe"}),
    _with("method\u0000", "tools/list"),
    _with("result", {}),
    _with("error", {"code": 1, "message": ""}),
    _with("result", None),
    _after("error", None),
    _after("error", "x"),
    _with("extra", [1, {"a": None}]),
    _with("jsonrpc", "1.0"),
    _swap(b'"name"', b'"Name"'),
    _swap(b'"name": ', b'"name": "wipe", "name": '),
    _swap(b'"name": ', b'"Name": "wipe", "name": '),
    _swap(b'"name": "', b'"name": ["'),
    _swap(b'"name": ', b'"name": ["wipe"], "name": '),
    _after("params", ["wipe"]),
    _swap(b"{", b'{"x": [{"a": 1, "a": 2}], '),
    _swap(b'"name"', b'"\\u006eame"'),
    _swap(b'"method"', b'"\\u006dethod"'),
    _swap(b'"method": "tools/call"', b'"method": "tools\\/call"'),
    _swap(b'"jsonrpc": "2.0"', b'"jsonrpc": 2.0'),
    _swap(b'"jsonrpc": "2.0", ', b""),
    _swap(b'"id": 1', b'"id": 1.5'),
    _swap(b'"id": 1', b'"id": null'),
    _swap(b'"id": 1', b'"id": {}'),
    _swap(b'"id": 1, ', b""),
    _swap(b'"id": 1', b'"id": [1]'),
    _swap(b'"id": 1', b'"id": "' + b"y" * 3_000 + b'"'),
    _swap(b'"id": 1', b'"id": 9007199254740993'),
    _swap(b'"name": "', b'"name": "' + b"y" * 300),
    _swap(b'"params": {', b'"params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, '),
    _swap(b'"params": {', b'"params": {"_meta": {"io.modelcontextprotocol/protocolVersion": null}, '),
    _swap(b'"params": {', b'"params": {"_meta": {"progressToken": 7}, '),
    _swap(b'"arguments": {}', b'"arguments": {"a": [' + b"0," * 10_000 + b"0]}"),
    _swap(b'"arguments": {}', b'"arguments": {"a": 1e999}'),
    _swap(b'"arguments": {}', b'"arguments": {"a": -0, "b": 12345678901234567890123}'),
    _swap(b'"arguments": {}', b'"arguments": {"a": 1, "a": 2}'),
    _swap(b'"arguments": {}', b'"arguments": [1]'),
    _swap(b'"arguments": {}', b'"arguments": {"a": NaN}'),
    _swap(b'"arguments": {}', b'"arguments": {"a": "\\ud800"}'),
    _swap(b'"params": {', b'"params": [{'),
    _swap(b'"', b"'"),
    _swap(b'{"jsonrpc"', b"{'jsonrpc'"),
    _swap(b'{"jsonrpc"', b"{jsonrpc"),
    _escaped,
    lambda body: b"\xef\xbb\xbf" + body,
    lambda body: body + b"\n",
    lambda body: b" \t\r\n" + body,
    lambda body: body + b"x",
    lambda body: body + b"\x00",
    lambda body: body + b"\n" + body,
    lambda body: body[:-1],
    lambda body: body[:-1] + b",}",
    lambda body: b"/* */" + body,
    lambda body: body.replace(b"add", b"a\xffd"),
    lambda body: body.decode("latin-1").encode("utf-16"),
    lambda body: body[:-1] + b', "x": ' + b"[" * 70 + b"]" * 70 + b"}",
    lambda body: body[:-1] + b', "x": "' + b"y" * 5_000 + b'"}',
    lambda body: body + b" " * 66_000,
)
