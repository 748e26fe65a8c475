import json
from typing import Any, Final

import pytest
from tests.support.mcp.posted_messages import CALL, Refused, argument, check, encode, fault, message, post, table

from authplane.policy.mcp.mcp_calls import MethodCall, ToolCall
from authplane.policy.mcp.mcp_refusal import Fault
from authplane.policy.mcp.mcp_versions import ASSUMED

BATCHES: Final = {
    "a batch": Refused([message(), message(params={"name": "evil"})], Fault.BATCH),
    "a batch of one": Refused([message()], Fault.BATCH),
    "an empty batch": Refused([], Fault.BATCH),
    "a batch behind blanks": Refused(b" \r\n\t" + encode([message()]), Fault.BATCH),
}


@pytest.mark.requirement("M1", "M01", "P8")
@table(BATCHES)
def test_a_batch_is_refused(case: Refused) -> None:
    check(case)


DUPLICATES: Final = {
    "two names": Refused(f'{{{CALL},"params":{{"name":"safe","name":"evil"}}}}', Fault.DUPLICATE_MEMBER),
    "two names, one escaped": Refused(
        f'{{{CALL},"params":{{"name":"safe","na\\u006de":"e"}}}}', Fault.DUPLICATE_MEMBER
    ),
    "two params": Refused(f'{{{CALL},"params":{{"name":"a"}},"params":{{"name":"b"}}}}', Fault.DUPLICATE_MEMBER),
    "two params, one a list": Refused(f'{{{CALL},"params":{{"name":"a"}},"params":[]}}', Fault.DUPLICATE_MEMBER),
    "two methods": Refused('{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}', Fault.DUPLICATE_MEMBER),
    "two of one argument": Refused(
        f'{{{CALL},"params":{{"name":"a","arguments":{{"x":[{{"y":1,"y":1}}]}}}}}}', Fault.DUPLICATE_MEMBER
    ),
}


@pytest.mark.requirement("M02", "P1")
@table(DUPLICATES)
def test_a_duplicate_member_is_rejected(case: Refused) -> None:
    check(case)


def named(member: str, *, inside: bool = False, value: Any = "evil") -> dict[str, Any]:
    """Make a call with one more member, at the top or in its params."""
    return message(params={"name": "add", member: value}) if inside else message(**{member: value})


CASES_OF_LETTERS: Final = {
    f"{member} at the {'params' if inside else 'top'}": Refused(
        named(member, inside=inside), Fault.LOOKALIKE, id="1" if inside else None
    )
    for member in ("Method", "METHOD", "Params", "iD", "JSONRPC", "Result", "Error", "Name", "NAME", "Arguments", "URI")
    for inside in (False, True)
}


@pytest.mark.requirement("P2")
@table(CASES_OF_LETTERS)
def test_a_member_in_another_case_is_refused(case: Refused) -> None:
    check(case)


UNICODE: Final = {
    repr(member): Refused(named(member, inside=inside), Fault.LOOKALIKE, id="1" if inside else None)
    for member, inside in {
        "param\u017f": False,
        "re\u017fult": False,
        "\uff4d\uff45\uff54\uff48\uff4f\uff44": False,
        "\u0131d": False,
        "\u0130d": False,
        "argument\u017f": True,
        "na\u0301me": True,
        "na\u200bme": True,
        "na\u00adme": True,
        "tas\u212aId": True,
        "\ufeffname": True,
    }.items()
}


@pytest.mark.requirement("P3")
@table(UNICODE)
def test_a_member_that_folds_to_a_known_one_is_refused(case: Refused) -> None:
    check(case)


NULS: Final = {
    repr(member): Refused(named(member, inside=inside), Fault.LOOKALIKE, id="1" if inside else None)
    for member, inside in {
        "method\0": False,
        "\0params": False,
        "name\0": True,
        "name\0\0": True,
        "na\0me": True,
        "name\0x": True,
        "method\0x": False,
        "name ": True,
        "name\t": True,
        "Name\0": True,
    }.items()
}


@pytest.mark.requirement("P4")
@table(NULS)
def test_a_member_with_a_nul_or_a_blank_is_refused(case: Refused) -> None:
    check(case)


@pytest.mark.requirement("P5")
def test_escapes_are_decoded_before_anything_is_compared_and_nothing_is_normalised() -> None:
    escaped = '{"jsonrpc":"2.0","\\u0069d":1,"m\\u0065thod":"tools\\/c\\u0061ll","params":{"n\\u0061me":"\\u0061dd"}}'
    assert post(escaped) == ToolCall(id="1", name="add", arguments={}, version=ASSUMED)
    names = ["caf\u00e9", "cafe\u0301", "\uff41dd", "Add", "\u212aelvin"]
    calls = [post(message(params={"name": name})) for name in names]
    assert [call.name for call in calls if isinstance(call, ToolCall)] == names


TRAILING: Final = {
    "a second message": Refused(encode(message()) + encode(message()), Fault.NOT_JSON, -32700),
    "a second line": Refused(encode(message()) + b"\n" + encode(message()), Fault.NOT_JSON, -32700),
    "a letter": Refused(encode(message()) + b"x", Fault.NOT_JSON, -32700),
    "a NUL": Refused(encode(message()) + b"\0", Fault.NOT_JSON, -32700),
    "a bracket": Refused(encode(message()) + b"]", Fault.NOT_JSON, -32700),
}


@pytest.mark.requirement("P6")
@table(TRAILING)
def test_anything_after_the_message_is_refused(case: Refused) -> None:
    check(case)


MIXED: Final = {
    "a result": Refused(message(result={}), Fault.METHOD_WITH_RESULT),
    "an error": Refused(message(error={"code": 1, "message": ""}), Fault.METHOD_WITH_RESULT),
    "a null result": Refused(message(result=None), Fault.METHOD_WITH_RESULT),
}


@pytest.mark.requirement("P7")
@table(MIXED)
def test_a_method_together_with_a_result_is_refused(case: Refused) -> None:
    check(case)


BYTES: Final = {
    "a bad byte": Refused(encode(message()).replace(b"add", b"a\xffd"), Fault.NOT_JSON, -32700),
    "an overlong form": Refused(encode(message()).replace(b"add", b"a\xc1\xa1d"), Fault.NOT_JSON, -32700),
    "an encoded surrogate": Refused(encode(message()).replace(b"add", b"\xed\xa0\x80"), Fault.NOT_JSON, -32700),
    "half of a pair": Refused(encode(message()).replace(b"add", rb"\ud800"), Fault.NOT_JSON, -32700),
    "a byte order mark": Refused(b"\xef\xbb\xbf" + encode(message()), Fault.NOT_JSON, -32700),
    "UTF-16": Refused(json.dumps(message()).encode("utf-16"), Fault.NOT_JSON, -32700),
    "UTF-32": Refused(json.dumps(message()).encode("utf-32-le"), Fault.NOT_JSON, -32700),
}


@pytest.mark.requirement("P9")
@table(BYTES)
def test_what_is_not_clean_utf_8_is_refused(case: Refused) -> None:
    check(case)


LENIENT: Final = {
    "single quotes": Refused(encode(message()).replace(b'"', b"'"), Fault.NOT_JSON, -32700),
    "a comma too many": Refused(f"{{{CALL},}}", Fault.NOT_JSON, -32700),
    "a comment": Refused(f"{{{CALL}/**/}}", Fault.NOT_JSON, -32700),
    "bare names": Refused('{jsonrpc:"2.0",id:1,method:"ping"}', Fault.NOT_JSON, -32700),
    "a line break in a text": Refused('{"jsonrpc":"2.0","id":1,"method":"ping\n"}', Fault.NOT_JSON, -32700),
    "a leading zero": Refused('{"jsonrpc":"2.0","id":01,"method":"ping"}', Fault.NOT_JSON, -32700),
    "a text": Refused('"ping"', Fault.NOT_A_MESSAGE),
    "a number": Refused("1", Fault.NOT_A_MESSAGE),
    "null": Refused("null", Fault.NOT_A_MESSAGE),
}


@table(LENIENT)
def test_what_only_lenient_readers_read_is_refused(case: Refused) -> None:
    check(case)


HUGE: Final = {
    "nested 2,000 deep": Refused(argument("[" * 2000 + "]" * 2000), Fault.NOT_JSON, -32700),
    "nested 30,000 deep": Refused("[" * 30_000, Fault.NOT_JSON, -32700),
    "nested objects": Refused(argument('{"a":' * 70 + "1" + "}" * 70), Fault.NOT_JSON, -32700),
    "5,000 digits": Refused(argument("9" * 5000), Fault.NOT_JSON, -32700),
    "NaN": Refused(argument("NaN"), Fault.NOT_JSON, -32700),
    "Infinity": Refused(argument("Infinity"), Fault.NOT_JSON, -32700),
    "-Infinity": Refused(argument("-Infinity"), Fault.NOT_JSON, -32700),
    "1e400": Refused(argument("1e400"), Fault.NOT_JSON, -32700),
    "30,000 members": Refused(argument(f"[{','.join('1' * 30_000)}]"), Fault.NOT_JSON, -32700),
}


@pytest.mark.requirement("M16", "P15")
@table(HUGE)
def test_depth_digits_and_numbers_beyond_all_measure_are_refused(case: Refused) -> None:
    check(case)


TYPES: Final = {
    "no method": Refused(message(...), Fault.METHOD),
    "method null": Refused(message(method=None, params={}), Fault.METHOD, id="1"),
    "method a number": Refused(message(5, {}), Fault.METHOD, id="1"),
    "method a list": Refused(message(["tools/call"], {}), Fault.METHOD, id="1"),
    "method an object": Refused(message({}, {}), Fault.METHOD, id="1"),
    "method empty": Refused(message("", {}), Fault.METHOD, id="1"),
    "params null": Refused(f'{{{CALL},"params":null}}', Fault.PARAMS, -32602, "1"),
    "params a list": Refused(message(params=["add"]), Fault.PARAMS, -32602, "1"),
    "params a text": Refused(message(params="add"), Fault.PARAMS, -32602, "1"),
    "params missing": Refused(f"{{{CALL}}}", Fault.SUBJECT, -32602, "1"),
    "params of another method": Refused(message("ping", ["x"]), Fault.PARAMS, -32602, "1"),
    "name missing": Refused(message(params={}), Fault.SUBJECT, -32602, "1"),
    "name null": Refused(message(params={"name": None}), Fault.SUBJECT, -32602, "1"),
    "name a number": Refused(message(params={"name": 1}), Fault.SUBJECT, -32602, "1"),
    "name an object": Refused(message(params={"name": {}}), Fault.SUBJECT, -32602, "1"),
    "name a list": Refused(message(params={"name": ["add"]}), Fault.SUBJECT, -32602, "1"),
    "name empty": Refused(message(params={"name": ""}), Fault.SUBJECT, -32602, "1"),
    "name with a NUL": Refused(message(params={"name": "add\0_x"}), Fault.SUBJECT, -32602, "1"),
    "name with a line break": Refused(message(params={"name": "add\n"}), Fault.SUBJECT, -32602, "1"),
    "name with nothing to see": Refused(message(params={"name": "add\u200b"}), Fault.SUBJECT, -32602, "1"),
    "name too long": Refused(message(params={"name": "a" * 257}), Fault.SUBJECT, -32602, "1"),
    "uri a list": Refused(message("resources/read", {"uri": ["x"]}), Fault.SUBJECT, -32602, "1"),
    "arguments a list": Refused(message(params={"name": "a", "arguments": []}), Fault.ARGUMENTS, -32602, "1"),
    "arguments a text": Refused(message(params={"name": "a", "arguments": ""}), Fault.ARGUMENTS, -32602, "1"),
    "arguments false": Refused(message(params={"name": "a", "arguments": False}), Fault.ARGUMENTS, -32602, "1"),
    "jsonrpc 1.0": Refused(message(jsonrpc="1.0"), Fault.JSONRPC),
    "jsonrpc a number": Refused(message(jsonrpc=2.0), Fault.JSONRPC),
    "jsonrpc missing": Refused(message(jsonrpc=...), Fault.JSONRPC),
    "ref a text": Refused(message("completion/complete", {"ref": "x"}), Fault.SUBJECT, -32602, "1"),
    "ref of no kind": Refused(message("completion/complete", {"ref": {"name": "x"}}), Fault.SUBJECT, -32602, "1"),
    "ref of two kinds": Refused(
        message("completion/complete", {"ref": {"type": "ref/prompt", "name": "x", "uri": "y"}}),
        Fault.SUBJECT,
        -32602,
        "1",
    ),
    "ref in another case": Refused(
        message("completion/complete", {"ref": {"type": "ref/prompt", "name": "x", "Name": "y"}}),
        Fault.SUBJECT,
        -32602,
        "1",
    ),
    "meta a list": Refused(message("ping", {"_meta": []}), Fault.ENVELOPE, -32602, "1"),
}


@pytest.mark.requirement("M09")
@table(TYPES)
def test_a_member_of_a_wrong_type_or_missing_is_refused(case: Refused) -> None:
    check(case)


@pytest.mark.parametrize(
    "method", ["tools/Call", "Tools/call", " tools/call", "tools/call ", "TOOLS/CALL", "t\u00f6", "a b"]
)
def test_a_method_is_a_known_one_to_the_letter_or_another_one(method: str) -> None:
    assert fault(post(message(method, {"name": "add"}))) is Fault.METHOD


RESPONSES: Final = {
    "both a result and an error": Refused({"jsonrpc": "2.0", "id": 1, "result": {}, "error": {}}, Fault.RESPONSE),
    "no id": Refused({"jsonrpc": "2.0", "result": {}}, Fault.RESPONSE),
    "params": Refused({"jsonrpc": "2.0", "id": 1, "result": {}, "params": {"name": "add"}}, Fault.RESPONSE),
}


@table(RESPONSES)
def test_a_response_is_nothing_else_as_well(case: Refused) -> None:
    check(case)


@pytest.mark.requirement("M12")
def test_only_the_top_of_a_message_says_what_is_called() -> None:
    inner = message(params={"name": "evil"})
    assert post(message("ping", {"_meta": inner, "x": [inner]})) == MethodCall(
        id="1", method="ping", params={"_meta": inner, "x": [inner]}, version=ASSUMED
    )
    assert post(message(params={"name": "add", "arguments": inner})) == ToolCall(
        id="1", name="add", arguments=inner, version=ASSUMED
    )
