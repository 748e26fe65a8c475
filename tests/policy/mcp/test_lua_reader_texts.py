"""The reader inside Envoy, with the texts that parsers of JSON are tried with and with what hypothesis finds.

The claim is that of ``test_lua_reader``: what the reader calls plain, the policy server accepts with the same meaning.
"""

import json
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.mcp.generated_messages import Request, disagreement
from tests.support.mcp.json_texts import INVALID, UNUSUAL, VALID
from tests.support.mcp.lua_reader import SOURCE, LuaReader

from authplane.policy.mcp.mcp_versions import ProtocolVersion
from authplane.policy.mcp.methods import ABOUT_NOTHING, NAMES
from authplane.policy.mcp.mirrored_headers import VERSION_MEMBER

READER: Final = LuaReader()
JSON: Final = ("content-type", "application/json")
PLACES: Final = {
    "the message": b"%b",
    "the id": b'{"jsonrpc":"2.0","id":%b,"method":"ping"}',
    "the method": b'{"jsonrpc":"2.0","id":1,"method":%b}',
    "the version": b'{"jsonrpc":%b,"id":1,"method":"ping"}',
    "the params": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%b}',
    "the tool": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%b}}',
    "the arguments": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":%b}}',
    "an argument": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":%b}}}',
    "a list": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"b":[%b]}}}',
    "the metadata": b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":%b}}',
    "a reference": b'{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":%b}}',
    "another member": b'{"jsonrpc":"2.0","x":%b,"id":1,"method":"ping"}',
    "what is before": b'%b{"jsonrpc":"2.0","id":1,"method":"ping"}',
    "what is behind": b'{"jsonrpc":"2.0","id":1,"method":"ping"}%b',
    "a name": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{%b:1}}}',
}
VALUES: Final = ("an argument", "a list", "another member")
"""Where any value may be, unless a rule reads it."""


def requests(body: bytes) -> tuple[Request, ...]:
    """Return a message for a target whose rules read no arguments, and for one whose rules do."""
    return tuple(Request("POST", (JSON,), "/mcp", body, wanted) for wanted in ((), ("a",), ("a", "b")))


def is_plain(body: bytes) -> bool:
    return READER.read("POST", (JSON,), "/mcp", body) is not None


@pytest.mark.requirement("M05", "E19")
@pytest.mark.parametrize("place", PLACES)
def test_texts_mean_the_same_wherever_they_are(place: str) -> None:
    bodies = [PLACES[place].replace(b"%b", text) for text in (*VALID, *UNUSUAL, *INVALID)]
    assert [said for body in bodies for each in requests(body) if (said := disagreement(READER, each))] == []


@pytest.mark.parametrize("place", VALUES)
def test_no_text_is_plain_that_is_no_json(place: str) -> None:
    # A list may be empty.
    texts = [each for each in INVALID if not (place == "a list" and each == b"")]
    assert [each for each in texts if is_plain(PLACES[place].replace(b"%b", each))] == []


LONG: Final = {b"-0." + b"0" * 71 + b"1"}
"""Numbers that are longer than the reader takes."""


@pytest.mark.parametrize("place", VALUES)
def test_texts_that_every_parser_reads_are_plain(place: str) -> None:
    found = {each for each in VALID if not is_plain(PLACES[place].replace(b"%b", each))}
    assert found == LONG | {each for each in VALID if b'"\\u0000"' in each}


# --- Generated and mutated messages

NAME: Final = st.sampled_from(("a", "b", "name", "x", "A", "é", "id", "_meta", "method", " a", "ﬁ", "", "params"))
TEXT: Final = st.one_of(st.text(max_size=12), st.sampled_from(("add", "2.0", "tools/call", "\ud83d\ude00", "\x7f")))
NUMBER: Final = st.one_of(
    st.integers(-(2**70), 2**70), st.integers(-20, 20), st.floats(allow_nan=False, allow_infinity=False)
)
VALUE: Final[st.SearchStrategy[Any]] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBER, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAME, inner, max_size=4)),
    max_leaves=8,
)
METHOD: Final = st.one_of(st.sampled_from((*sorted(NAMES), *sorted(ABOUT_NOTHING))), st.just("tools/call"), TEXT)
VERSION: Final = st.sampled_from([each.value for each in ProtocolVersion])


@st.composite
def messages(draw: st.DrawFn) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Make a message and its headers: right, but for what is odd about it."""
    method, version, subject = draw(METHOD), draw(VERSION), draw(st.sampled_from(("add", "a b", "é", "x" * 256)))
    params: dict[str, Any] = {NAMES[method]: subject} if method in NAMES else {}
    if method == "tools/call":
        params["arguments"] = draw(st.one_of(st.dictionaries(NAME, VALUE, max_size=4), VALUE))
    headers = [JSON]
    if version == ProtocolVersion.V2026_07_28 or draw(st.booleans()):
        headers.append(("mcp-protocol-version", version))
        params["_meta"] = {VERSION_MEMBER: draw(st.one_of(st.just(version), VERSION))}
        if _is_sent(method):
            headers.append(("mcp-method", method))
        if method in {"tools/call", "prompts/get", "resources/read"} and subject.isascii():
            headers.append(("mcp-name", subject))
    message = {"jsonrpc": "2.0", "id": draw(st.one_of(st.integers(0, 9), VALUE)), "method": method, "params": params}
    for odd in draw(st.lists(st.tuples(NAME, VALUE), max_size=1)):
        message[odd[0]] = odd[1]
    if method.startswith("notifications/"):
        del message["id"]
    return message, headers


def _is_sent(value: str) -> bool:
    """Tell whether a text can be the value of a header."""
    return value.isascii() and value.isprintable() and value.strip() == value != ""


PIECES: Final = st.one_of(
    st.binary(min_size=1, max_size=3),
    st.sampled_from((b'"', b"\\", b"\\u0061", b"{", b"}", b"[", b"]", b",", b":", b"0", b"-", b"e", b"\0", b"\xff")),
    st.sampled_from((*VALID[:60], *UNUSUAL[:40], *INVALID)),
)  # fmt: skip
CHANGES: Final = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4), PIECES), max_size=4)


def mutated(body: bytes, changes: list[tuple[float, int, bytes]]) -> list[bytes]:
    """Return what is left of a message after each change: some bytes go, others come in their place."""
    found = [body]
    for where, gone, piece in changes:
        at = round(where * len(found[-1]))
        found.append(found[-1][:at] + piece + found[-1][at + gone :])
        # The same change of the original, and a part of it that is there twice.
        found.append(body[:at] + piece + body[at:])
        found.append(body[:at] + body[at // 2 : at] + body[at:])
    return found


def _written(message: dict[str, Any], *, ascii_only: bool) -> bytes:
    return json.dumps(message, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


@pytest.mark.slow
@pytest.mark.requirement("M05", "E19")
@settings(max_examples=800)
@given(made=messages(), changes=CHANGES, ascii_only=st.booleans(), wanted=st.sets(NAME.filter(str.isascii), max_size=3))
def test_every_plain_message_that_hypothesis_makes_means_the_same(
    made: tuple[dict[str, Any], list[tuple[str, str]]],
    changes: list[tuple[float, int, bytes]],
    ascii_only: bool,
    wanted: set[str],
) -> None:
    message, headers = made
    arguments = tuple(sorted(each for each in wanted if each.strip() == each != ""))
    for body in mutated(_written(message, ascii_only=ascii_only), changes):
        assert disagreement(READER, Request("POST", tuple(headers), "/mcp", body, arguments)) == ""


FAULTS: Final = {
    b'if not high or high == "0000" then return nil end': b"if not high then return nil end",
    b"code < 32": b"code < 9",
    b'or find(text, "^%-?0%d", at)': b"",
    b"return at and skip_blanks(at) == #whole + 1": b"return at",
}


@pytest.mark.parametrize("line", FAULTS)
def test_the_texts_find_a_reader_that_takes_too_much(line: bytes) -> None:
    assert SOURCE.count(line) == 1
    faulty = LuaReader(source=SOURCE.replace(line, FAULTS[line]))
    bodies = [place.replace(b"%b", text) for place in PLACES.values() for text in (*UNUSUAL, *INVALID)]
    assert any(disagreement(faulty, each) for body in bodies for each in requests(body))
