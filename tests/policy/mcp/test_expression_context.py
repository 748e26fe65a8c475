import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mcp.posted_messages import argument, message, post

from authplane.policy.mcp.expression_context import Unfit, mcp_context
from authplane.policy.mcp.mcp_calls import ClientResponse, EndSession, OpenStream, ToolCall
from authplane.policy.mcp.mcp_refusal import McpRefusal
from authplane.policy.mcp.mcp_versions import ProtocolVersion

VERSION: Final = ProtocolVersion.V2025_11_25


def context(body: Any) -> Any:
    call = post(body)
    assert not isinstance(call, McpRefusal)
    return mcp_context(call)


def tool(arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(id="1", name="add", arguments=arguments, version=VERSION)


def test_a_tool_shows_its_name_and_arguments() -> None:
    assert context(message(params={"name": "add", "arguments": {"a": "x"}, "_meta": {"b": 1}})) == {
        "method": "tools/call",
        "tool_name": "add",
        "params": {"a": "x"},
    }


def test_other_methods_show_their_parameters_and_no_tool() -> None:
    assert context(message("resources/read", {"uri": "x://a"})) == {
        "method": "resources/read",
        "params": {"uri": "x://a"},
    }
    assert context(message("notifications/cancelled", {"requestId": 1}, id=...)) == {
        "method": "notifications/cancelled",
        "params": {"requestId": 1.0},
    }


@pytest.mark.parametrize(
    "call", [ClientResponse(version=VERSION), OpenStream(version=VERSION), EndSession(version=VERSION, session="s")]
)
def test_what_calls_no_method_shows_nothing(call: ClientResponse | OpenStream | EndSession) -> None:
    assert mcp_context(call) == {}


NUMBERS: Final = {
    "5": 5.0,
    "-3": -3.0,
    "0": 0.0,
    "1.5": 1.5,
    "-0": 0.0,
    "-0.0": 0.0,
    "9007199254740993": 9007199254740992.0,
    "9223372036854775807": 9223372036854775808.0,
    "-9223372036854775808": -9223372036854775808.0,
    "1e300": 1e300,
    "1E-400": 0.0,
}


@pytest.mark.requirement("P14")
@pytest.mark.parametrize(("text", "want"), NUMBERS.items())
def test_every_number_is_a_float_or_refused(text: str, want: float) -> None:
    found = context(argument(text))["params"]["x"]
    assert (repr(found), type(found)) == (repr(want), float)
    for large in ("9223372036854775808", "-9223372036854775809", "1" * 31):
        assert context(argument(large)) is Unfit.INTEGER
    assert isinstance(post(argument("1e999")), McpRefusal)


def test_booleans_and_null_stay_what_they_are() -> None:
    assert context(argument("[true,false,null,[1]]"))["params"]["x"] == [True, False, None, [1.0]]
    assert [type(each) for each in context(argument("[true,1]"))["params"]["x"]] == [bool, float]


NULS: Final[dict[str, dict[str, Any]]] = {
    "in a text": {"a": "admin\0x"},
    "in a name": {"role\0x": 1},
    "in a list": {"a": ["\0"]},
    "deep": {"a": [{"b": {"c\0": 1}}]},
}


@pytest.mark.parametrize("arguments", NULS.values(), ids=NULS.keys())
def test_no_expression_sees_a_nul(arguments: dict[str, Any]) -> None:
    assert context(message(params={"name": "add", "arguments": arguments})) is Unfit.NUL
    assert context(message("vendor/x", {"inner": arguments})) is Unfit.NUL


def test_no_expression_sees_a_tool_with_a_nul_in_its_name() -> None:
    assert isinstance(post(message(params={"name": "add\0_delete"})), McpRefusal)
    assert mcp_context(ToolCall(id="1", name="add\0_delete", arguments={}, version=VERSION)) is Unfit.NUL


def test_what_is_shown_is_a_copy() -> None:
    arguments = {"a": {"b": [1]}}
    shown = mcp_context(tool(arguments))
    assert isinstance(shown, dict)
    shown["params"]["a"]["b"].append(2)
    assert arguments == {"a": {"b": [1]}}


VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_shown_equals_what_was_sent_but_for_the_precision_of_numbers(arguments: dict[str, Any]) -> None:
    shown = mcp_context(tool(arguments))
    if isinstance(shown, Unfit):
        assert "\\u0000" in json.dumps(arguments)
    else:
        assert shown["params"] == json.loads(json.dumps(arguments), parse_int=float)
