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


def _first(written: bytes) -> Spoil:
    """Put a member, as it is written, before the others of the message."""
    return _swap(b"{", b"{" + written + b", ")


def _in_params(written: bytes) -> Spoil:
    return _swap(b'"params": {', b'"params": {' + written + b", ")


def _arguments(written: bytes) -> Spoil:
    """Replace arguments that are empty, and add them where there are none."""

    def spoil(body: bytes) -> bytes:
        made = b'"arguments": {' + written + b"}"
        return re.sub(rb'"arguments": \{[^{}]*\}', lambda _: made, body, count=1)

    return spoil


def _id(written: bytes) -> Spoil:
    return lambda body: re.sub(rb'"id": (?:1|0|"x-7")', lambda _: b'"id": ' + written, body, count=1)


def _members(number: int) -> bytes:
    return b", ".join(b'"m%d": 0' % each for each in range(number))


def _meta(version: str) -> bytes:
    return b'"_meta": {"io.modelcontextprotocol/protocolVersion": "%b"}' % version.encode()


ODD_DUPLICATES: Final[tuple[Spoil, ...]] = (
    _first(b'"\\u006dethod": "tools/list"'),
    _first(b'"method\\u0020": "tools/list"'),
    _first(b'"\\u0069d": 7'),
    _first(b'"id": 7'),
    _first(b'"p\\u0061rams": {"name": "wipe"}'),
    _first(b'"jsonrpc": "2.0"'),
    _in_params(b'"n\\u0061me": "wipe"'),
    _in_params(b'"u\\u0072i": "wipe"'),
    _in_params(b'"argument\\u0073": {"a": 1}'),
    _in_params(b'"arguments": {"a": 1}'),
    _in_params(b'"naMe": "wipe"'),
    _in_params(b'"\xef\xbc\xaeame": "wipe"'),
    _arguments(b'"a": 1, "\\u0061": 11'),
    _arguments(b'"\\u0061": 1'),
    _arguments(b'"a": 1, "a": 1'),
    _arguments(b'"a": 1, "A": 11'),
    _arguments(b'"a": 1, " a": 11'),
    _arguments(b'"a": {"b": 1, "b": 2}'),
    _arguments(b'"path": "/tmp/abc", "p\\u0061th": "/etc/passwd"'),
    _arguments(b'"path": "\\/tmp\\/abc"'),
    _arguments(b'"path": "/tmp/\\u0061bc"'),
    _arguments(b'"path": "/tmp/abc\\n"'),
)
"""Members that are there twice, and that some readers take for one that is there."""
ODD_NUMBERS: Final[tuple[Spoil, ...]] = (
    _arguments(b'"a": 1.0'),
    _arguments(b'"a": 1e0'),
    _arguments(b'"a": 10e-1'),
    _arguments(b'"a": -0'),
    _arguments(b'"a": 0.1e1'),
    _arguments(b'"a": 100000000000000000000'),
    _arguments(b'"a": 9.999999999999999999'),
    _arguments(b'"a": 1e-400'),
    _arguments(b'"a": 01'),
)
ODD_COUNTS: Final[tuple[Spoil, ...]] = (
    _arguments(_members(9_900)),
    _arguments(_members(9_990)),
    _arguments(_members(10_001)),
    _arguments(b'"a": [' + b"[]," * 9_990 + b"[]]"),
    _arguments(b'"a": ' + b"[" * 61 + b"]" * 61),
    _arguments(b'"a": ' + b"[" * 62 + b"]" * 62),
    _arguments(b'"a": ' + b'{"a":' * 61 + b"1" + b"}" * 61),
    _arguments(b'"a": ' + b'{"a":' * 62 + b"1" + b"}" * 62),
)
ODD_IDS: Final[tuple[Spoil, ...]] = (
    _id(b'"' + b"y" * 1_022 + b'"'),
    _id(b'"' + b"y" * 1_023 + b'"'),
    _id(b'"' + b"y" * 1_024 + b'"'),
    _id(b'"' + b"y" * 1_025 + b'"'),
    _id(b'"' + b"\\u0079" * 200 + b'"'),
    _id(b'"' + "é".encode() * 600 + b'"'),
    _id(b'"a\\"},{\\"b"'),
    _id(b'""'),
    _id(b"-7"),
    _id(b"1.0"),
    _id(b"1e2"),
    _id(b"999999999999999"),
    _id(b"9007199254740993"),
    _id(b"1" * 30),
    _id(b"true"),
    _id(b'"%d %s {}"'),
)
ODD_META: Final[tuple[Spoil, ...]] = (
    _in_params(_meta("2025-06-18")),
    _in_params(_meta("2025-11-25")),
    _in_params(_meta("1999-01-01")),
    _in_params(_meta("2026-07-28") + b", " + _meta("2026-07-28")),
    _in_params(b'"_meta": []'),
    _in_params(b'"_meta": null'),
    _in_params(b'"_meta": {"io.modelcontextprotocol/protocolVersion": 1}'),
    _in_params(b'"_meta": {"io.modelcontextprotocol/PROTOCOLVERSION": "2025-06-18"}'),
    _in_params(b'"_META": {}'),
    _in_params(b'"_meta": {"a": 1, "a": 2}'),
    _swap(b'"_meta": {', b'"_meta": {"io.modelcontextprotocol/protocol\\u0056ersion": "2025-06-18", '),
    _swap(b'protocolVersion": "2026-07-28"', b'protocolVersion": "2025-06-18"'),
)
SPOILED_BODIES: Final[tuple[Spoil, ...]] = (
    *ODD_DUPLICATES,
    *ODD_NUMBERS,
    *ODD_COUNTS,
    *ODD_IDS,
    *ODD_META,
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
