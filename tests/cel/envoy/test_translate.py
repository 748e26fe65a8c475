"""What becomes of each construct of the language in Envoy, and why some of it is left to the policy server."""

from functools import reduce
from typing import Final

import pytest
from google.api.expr.v1alpha1 import syntax_pb2 as pb
from google.protobuf import text_format
from tests.support.cel.expressions import program

from authplane.cel.envoy import condition_nodes
from authplane.cel.envoy.fitness import DEEPEST, is_too_deep
from authplane.cel.envoy.times import CALCULATED, FAR, MADE
from authplane.cel.envoy.translate import NOBODY, Certified, Claims, Condition, Members, Who, translate
from authplane.cel.envoy.wire import render_condition
from authplane.cel.syntax.source_text import render_text
from authplane.cel.syntax.tree import Loop
from authplane.cel.syntax.vocabulary import Macro
from authplane.core.envoy_releases import CURRENT, Release

ISSUER: Final = Claims("https://issuer.example")
AGENT: Final = Members((("spiffe_id", "spiffe://cluster.local/ns/default/sa/agent"),))
ACCOUNT: Final = Members((("service_account", "agent"), ("namespace", "default")))

NUMBER_AS_TEXT: Final = "converts a number or a time to a string, which Envoy formats differently"

TOKEN: Final = 'metadata.filter_metadata["envoy.filters.http.jwt_authn"]["https://issuer.example"]'
MCP: Final = 'metadata.filter_metadata["authplane.mcp"]["message"]'
MISSING: Final = 'metadata.filter_metadata["authplane.missing"]'
METHOD: Final = f'{MCP}["method"]'
TOOL: Final = f'({METHOD} == "tools/call" ? {MCP}["subject"] : {MISSING})'
TEXT: Final = '.matches("^(?s:.)*$")'


def header(name: str) -> str:
    found = f'request.headers["{name}"]'
    return f'("{name}" in request.headers ? ({found}{TEXT} ? {found} : {MISSING}) : {MISSING})'


TRANSLATED: Final[dict[str, tuple[str, Who, str]]] = {
    "the method": ('request.method == "GET"', NOBODY, 'request.method == "GET"'),
    "the host": ('request.host == "a"', NOBODY, 'request.host == "a"'),
    "the time": ("request.time < request.time", NOBODY, "request.time < request.time"),
    "the query is text": (
        'request.query == "a"',
        NOBODY,
        f'(request.query{TEXT} ? request.query : {MISSING}) == "a"',
    ),
    "a header by index": ('request.headers["x-a"] == "a"', NOBODY, f'{header("x-a")} == "a"'),
    "a header by member": ('request.headers.accept == "a"', NOBODY, f'{header("accept")} == "a"'),
    "whether there is a header": (
        '"x-a" in request.headers',
        NOBODY,
        f'"x-a" in request.headers ? (request.headers["x-a"]{TEXT} ? true : {MISSING}) : false',
    ),
    "a claim": ('identity.group == "a"', ISSUER, f'{TOKEN}["group"] == "a"'),
    "a claim within a claim": ("identity.a.b[0] == 1", ISSUER, f'{TOKEN}["a"]["b"][0] == 1'),
    "a claim within a list": ("identity.a[0].b", ISSUER, f'{TOKEN}["a"][0].b'),
    "whether there is a claim within a list": ("has(identity.a[0].b)", ISSUER, f'has({TOKEN}["a"][0].b)'),
    "a claim by an odd name": ('identity["https://ns/a"] == 1', ISSUER, f'{TOKEN}["https://ns/a"] == 1'),
    "whether there is a claim": ("has(identity.a)", ISSUER, f'"a" in {TOKEN}'),
    "whether there is a claim within a claim": ("has(identity.a.b)", ISSUER, f'has({TOKEN}["a"].b)'),
    "a workload is what the rule says": (
        'identity.spiffe_id.endsWith("agent")',
        AGENT,
        '{"spiffe_id": "spiffe://cluster.local/ns/default/sa/agent"}["spiffe_id"].endsWith("agent")',
    ),
    "one of several workloads": (
        'identity.spiffe_id == "a"',
        Certified(),
        '{"spiffe_id": connection.uri_san_peer_certificate}["spiffe_id"] == "a"',
    ),
    "a ServiceAccount": (
        "identity.namespace == identity.service_account",
        ACCOUNT,
        '{"service_account": "agent", "namespace": "default"}["namespace"] == '
        '{"service_account": "agent", "namespace": "default"}["service_account"]',
    ),
    "nobody has no members": ("has(identity.a)", NOBODY, '"a" in {}'),
    "all of an identity that the rule says": (
        "size(identity) == 1",
        AGENT,
        'size({"spiffe_id": "spiffe://cluster.local/ns/default/sa/agent"}) == 1',
    ),
    "the JSON-RPC method": ('request.mcp.method == "a"', NOBODY, f'{METHOD} == "a"'),
    "the tool": ('request.mcp.tool_name == "a"', NOBODY, f'{TOOL} == "a"'),
    "whether there is a tool, if nothing else is read": (
        "has(request.mcp.tool_name)",
        NOBODY,
        f'{METHOD} == "tools/call" ? true : {MISSING}',
    ),
    "an argument": ("request.mcp.params.a == 1", NOBODY, f'{MCP}["params"]["a"] == 1'),
    "an argument by an odd name": ('request.mcp.params["a b"] == 1', NOBODY, f'{MCP}["params"]["a b"] == 1'),
    "whether there is an argument": ("has(request.mcp.params.a)", NOBODY, f'"a" in {MCP}["params"]'),
    "lists, maps and operators": (
        'request.method in ["a", "b"] || {"a": 1}[request.method] == 1 && !(1 == 3) ? 1.5 < 2.0 : b"a" == b""',
        NOBODY,
        'request.method in ["a", "b"] || {"a": 1}[request.method] == 1 && !(1 == 3) ? 1.5 < 2.0 : b"\\x61" == b""',
    ),
    "a pattern, which Envoy wants no errors with": (
        'identity.a.matches("^b$")',
        ISSUER,
        f'type({TOKEN}["a"]) == string ? {TOKEN}["a"].matches("^b$") : {MISSING}',
    ),
    "a pattern as a function": (
        'matches(request.method, "b")',
        NOBODY,
        f'type(request.method) == string ? matches(request.method, "b") : {MISSING}',
    ),
    "types": ("type(identity.a) == string", ISSUER, f'type({TOKEN}["a"]) == string'),
    "times and durations of the expression": (
        'request.time - duration("1h30m") < timestamp("2030-01-01T00:00:00Z")',
        NOBODY,
        'request.time - duration("1h30m") < timestamp("2030-01-01T00:00:00Z")',
    ),
    "a time since 1970": ("request.time > timestamp(1790000000)", NOBODY, "request.time > timestamp(1790000000)"),
    "numbers of claims are no times": ("identity.a - 1.5 > 2.0", ISSUER, f'{TOKEN}["a"] - 1.5 > 2.0'),
    "a whole number as text": (
        'string(size(request.method)) == "3"',
        NOBODY,
        'string(size(request.method)) == "3"',
    ),
    "the largest exact number": ("identity.a == 9007199254740992", ISSUER, f'{TOKEN}["a"] == 9007199254740992'),
}

REFUSED: Final[dict[str, tuple[str, Who, tuple[str, ...]]]] = {
    "exists": ("identity.a.exists(x, x == 1)", ISSUER, ("uses exists()",)),
    "exists_one": ("identity.a.exists_one(x, x == 1)", ISSUER, ("uses exists_one()",)),
    "all": ("identity.a.all(x, x == 1)", ISSUER, ("uses all()",)),
    "map": ("identity.a.map(x, x) == []", ISSUER, ("uses map()",)),
    "filter": ("identity.a.filter(x, x == 1) == []", ISSUER, ("uses filter()",)),
    "all arguments": ("size(request.mcp.params) == 1", NOBODY, ("reads all tool arguments instead of one by name",)),
    "an argument whose name comes with the request": (
        "request.mcp.params[request.method] == 1",
        NOBODY,
        ("reads all tool arguments instead of one by name",),
    ),
    "a member of an argument": (
        "request.mcp.params.a.b == 1",
        NOBODY,
        ("reads request.mcp.params.a.b, which is a member of an argument",),
    ),
    "an argument whose name is not ASCII": (
        'request.mcp.params["é"] == 1',
        NOBODY,
        ("reads the argument 'é', whose name is not plain ASCII",),
    ),
    "an argument whose name ends in a blank": (
        'request.mcp.params["a "] == 1',
        NOBODY,
        ("reads the argument 'a ', whose name is not plain ASCII",),
    ),
    "whether there are arguments": (
        "has(request.mcp.params)",
        NOBODY,
        ("tests whether request.mcp.params is present",),
    ),
    "whether it is MCP": ("has(request.mcp)", NOBODY, ("tests whether request.mcp is present",)),
    "scope": ('identity.scope == "a"', ISSUER, ("reads identity.scope, which Envoy splits into single scopes",)),
    "scp": ('"a" in identity["scp"]', ISSUER, ("reads identity.scp, which Envoy splits into single scopes",)),
    "whether there are scopes": (
        "has(identity.scope)",
        ISSUER,
        ("reads identity.scope, which Envoy splits into single scopes",),
    ),
    "all claims": ("size(identity) == 1", ISSUER, ("reads all claims instead of one by name",)),
    "a claim whose name comes with the request": (
        "identity[request.method] == 1",
        ISSUER,
        ("reads all claims instead of one by name",),
    ),
    "all headers": ("size(request.headers) == 1", NOBODY, ("reads all headers instead of one by name",)),
    "a header whose name comes with the request": (
        'request.headers[request.query] == "a"',
        NOBODY,
        ("reads all headers instead of one by name",),
    ),
    "whether there are headers": ("has(request.headers)", NOBODY, ("tests whether request.headers is present",)),
    "a header in upper case": (
        'request.headers["X-A"] == "a"',
        NOBODY,
        ("names the header X-A; header names are lower case",),
    ),
    "the token itself": (
        'request.headers.authorization == "a"',
        NOBODY,
        ("reads the header authorization, which Envoy's filters see differently",),
    ),
    "a pseudo-header": (
        'request.headers[":path"] == "a"',
        NOBODY,
        ("reads the header :path, which Envoy's filters see differently",),
    ),
    "a large pattern": (
        'request.method.matches("^[A-Za-z0-9._-]{1,64}$")',
        NOBODY,
        ("uses a regular expression that is larger than Envoy accepts",),
    ),
    "a large number": ("identity.a == 9007199254740993", ISSUER, ("uses a number that is too large to be exact",)),
    "a large unsigned number": (
        "identity.a == 9007199254740993u",
        ISSUER,
        ("uses a number that is too large to be exact",),
    ),
    "lists that are joined": ("[1] + [2] == [1, 2]", NOBODY, ("concatenates strings or lists",)),
    "who knows what is joined": ("identity.a + identity.b == 1", ISSUER, ("concatenates strings or lists",)),
    "a time zone": ('request.time.getHours("Europe/Berlin") == 1', NOBODY, ("uses a time zone",)),
    "a number as text": ("string(identity.a) == string(identity.b)", ISSUER, (NUMBER_AS_TEXT,)),
    "a calculated number as text": ('string(identity.a + 0.2) == "0.3"', ISSUER, (NUMBER_AS_TEXT,)),
    "a time as text": ('string(request.time) == "a"', NOBODY, (NUMBER_AS_TEXT,)),
    "milliseconds of a claim as a time": ("timestamp(int(identity.a)) > request.time", ISSUER, (MADE,)),
    "the text of a claim as a time": ("timestamp(identity.a) > request.time", ISSUER, (MADE,)),
    "the text of a claim as a duration": ("request.time + duration(identity.a) > request.time", ISSUER, (MADE,)),
    "a time after all calendars": ("request.time < timestamp(253402300800)", NOBODY, (FAR,)),
    "a time in a far century": ('request.time < timestamp("9999-12-31T23:59:59Z")', NOBODY, (FAR,)),
    "a duration of centuries": ('request.time + duration("315576000000s") > request.time', NOBODY, (FAR,)),
    "a duration of centuries in parts": (f'duration("{"999999m" * 60}") > duration("1s")', NOBODY, (FAR,)),
    "part of a nanosecond": ('request.time + duration("0.5ns") > request.time', NOBODY, (FAR,)),
    "time after time": ('request.time - duration("1h") - duration("1h") < request.time', NOBODY, (CALCULATED,)),
    "a time among values of any type": (
        'dyn(request.time) - dyn(timestamp("2020-01-01T00:00:00Z")) == 1',
        NOBODY,
        (CALCULATED,),
    ),
    "a type of protobuf": (
        "type(request.time) == google.protobuf.Timestamp",
        NOBODY,
        ("compares types (google.protobuf.Timestamp)",),
    ),
    "every reason is said, and once": (
        "identity.a.all(x, x == 1) && identity.b.all(x, x == 1) && size(request.mcp.params) == 9007199254740993",
        ISSUER,
        (
            "uses all()",
            "reads all tool arguments instead of one by name",
            "uses a number that is too large to be exact",
        ),
    ),
}


@pytest.mark.parametrize(("text", "who", "want"), TRANSLATED.values(), ids=TRANSLATED.keys())
def test_a_construct_has_its_counterpart(text: str, who: Who, want: str) -> None:
    condition = translate(program(text), who, CURRENT)
    assert isinstance(condition, Condition), condition
    assert render_text(condition.tree) == want


@pytest.mark.parametrize(("text", "who", "reasons"), REFUSED.values(), ids=REFUSED.keys())
def test_a_construct_is_left_to_the_policy_server(text: str, who: Who, reasons: tuple[str, ...]) -> None:
    assert translate(program(text), who, CURRENT) == reasons


def test_a_path_that_servers_read_in_different_ways_is_none() -> None:
    condition = translate(program('request.path == "/a"'), NOBODY, CURRENT)
    whole = translate(program('request.url_path == "/a"'), NOBODY, CURRENT)
    present = translate(program("has(request.path)"), NOBODY, CURRENT)
    assert isinstance(condition, Condition)
    assert isinstance(present, Condition)
    assert condition == whole
    assert render_text(condition.tree) == f'({render_text(present.tree)} ? request.url_path : {MISSING}) == "/a"'


def test_a_tool_may_be_absent_where_the_method_is_read_as_well() -> None:
    condition = translate(program('has(request.mcp.tool_name) || request.mcp.method == "a"'), NOBODY, CURRENT)
    assert isinstance(condition, Condition)
    assert render_text(condition.tree) == f'{METHOD} == "tools/call" || {METHOD} == "a"'


def test_texts_are_joined_and_made_where_the_release_can_be_told_to() -> None:
    both = program('string(int(identity.a)) + "b" == "1b"')
    condition = translate(both, ISSUER, Release(1, 37))
    assert isinstance(condition, Condition)
    assert (condition.conversion, condition.concatenation, condition.reads_mcp) == (True, True, False)
    assert translate(both, ISSUER, Release(1, 36)) == ("concatenates strings or lists",)
    assert translate(program('string(identity.a) == "b"'), ISSUER, Release(1, 36)) == ("uses string()",)


@pytest.mark.parametrize(
    "value",
    ["request.method", "uint(size(request.method))", "size(request.method)", "bytes(request.method)", "true || false"],
)
def test_what_is_written_alike_everywhere_may_be_written_as_text(value: str) -> None:
    assert isinstance(translate(program(f'string({value}) == "a"'), NOBODY, CURRENT), Condition)


def test_sums_of_numbers_need_no_setting() -> None:
    condition = translate(program('request.mcp.method == "a" && 1 + 1 == 2'), NOBODY, CURRENT)
    assert isinstance(condition, Condition)
    assert (condition.conversion, condition.concatenation, condition.reads_mcp) == (False, False, True)


def test_what_is_nested_too_deeply_for_protobuf_is_found() -> None:
    fit = reduce(lambda inner, _: condition_nodes.negated(inner), range(DEEPEST - 1), condition_nodes.name("request"))
    assert (is_too_deep(fit), is_too_deep(condition_nodes.negated(fit))) == (False, True)


def test_maps_are_deeper_than_other_nodes_since_envoy_reads_their_entries_too() -> None:
    fit = reduce(lambda inner, _: condition_nodes.record([("a", inner)]), range(15), condition_nodes.name("request"))
    assert (is_too_deep(fit), is_too_deep(condition_nodes.record([("a", fit)]))) == (False, True)


def test_the_message_is_written_with_ids_of_its_own() -> None:
    condition = translate(program("[1u, null] != [] && {} == {2: true}"), NOBODY, CURRENT)
    assert isinstance(condition, Condition)
    want = """
        id: 1 call_expr { function: "_&&_"
          args { id: 2 call_expr { function: "_!=_"
            args { id: 3 list_expr {
              elements { id: 4 const_expr { uint64_value: 1 } } elements { id: 5 const_expr { null_value: NULL_VALUE } }
            } }
            args { id: 6 list_expr {} } } }
          args { id: 7 call_expr { function: "_==_"
            args { id: 8 struct_expr {} }
            args { id: 9 struct_expr { entries { id: 10
              map_key { id: 11 const_expr { int64_value: 2 } } value { id: 12 const_expr { bool_value: true } } } } }
          } } }"""
    assert render_condition(condition.tree) == text_format.Parse(want, pb.Expr())


def test_no_loop_is_ever_written() -> None:
    loop = Loop(id=0, at=0, macro=Macro.ALL, variable="x", over=condition_nodes.literal(1), test=None, result=None)
    with pytest.raises(ValueError, match="neither loops"):
        render_condition(loop)
