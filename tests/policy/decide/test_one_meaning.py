"""Requests whose path, headers, method or host could be read in more than one way."""

from dataclasses import replace

import pytest
from tests.support.authservers.answers import parse_check
from tests.support.authservers.check_requests import check
from tests.support.policies.callers import Proof, workload
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, GATEWAY, anybody, policy, rule
from tests.support.policies.judging import judge, word
from tests.support.policies.mcp_requests import ADD_CALL, request
from tests.support.policies.names import EDGE

from authplane.core.names import Ref
from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.check.request import Malformed, Request

THROUGH = RequestTarget(gateway=EDGE)
"""To a Service behind the Gateway: nothing but HTTP."""
EDGE_TARGET = "[{kind: Gateway, name: edge}]"


def inline(text: str) -> Policies:
    entry = f"[{{type: Inline, {text}}}]"
    return policies(GATEWAY, policy(anybody(entry), kind="XAccessPolicy", targets=EDGE_TARGET))


def cel(expression: str) -> Policies:
    entry = f"[{{type: CEL, cel: '{expression}'}}]"
    return policies(GATEWAY, policy(anybody(entry), targets=EDGE_TARGET))


def plain(path: str = "/", method: str = "GET", headers: tuple[tuple[str, str], ...] = ()) -> Request:
    return replace(request(), method=method, path=path, headers=headers, body=b"")


RULES = {
    "inline": (inline("paths: [/public*]"), inline("paths: [/*]")),
    "cel": (cel('request.path.startsWith("/public")'), cel('!request.path.startsWith("/admin")')),
    "cel, by another name": (
        cel('request.url_path.startsWith("/public")'),
        cel('request.url_path != "/admin"'),
    ),
}
PATHS = [
    "/public/../admin", "//public", "/public//../admin", "/public/%2e%2e/admin", "/public%2f..%2fadmin",
    "/public%2Fx", "/public\\..\\admin", "/public;x", "/public/.", "/public/%61", "/public%00", "/public%5c..",
]  # fmt: skip


@pytest.mark.requirement("E12")
@pytest.mark.parametrize(("listed", "all_but"), RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_servers_read_in_different_ways_satisfies_no_rule(
    listed: Policies, all_but: Policies, path: str
) -> None:
    for made in (listed, all_but):
        assert word(judge(made, plain(path), Proof(), target=THROUGH)) == "403"
        assert word(judge(made, plain("/public/x"), Proof(), target=THROUGH)) == "allow"


@pytest.mark.requirement("E12")
@pytest.mark.parametrize(("listed", "_all_but"), RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("target", ["/admin?x=/public", "/admin?/public", "/?/public"])
def test_the_query_is_no_part_of_the_path(listed: Policies, _all_but: Policies, target: str) -> None:
    asked = parse_check(check(target).SerializeToString())
    assert isinstance(asked, Request)
    assert word(judge(listed, asked, Proof(), target=THROUGH)) == "403"


@pytest.mark.requirement("E12")
@pytest.mark.parametrize("target", ["http://evil/public", "public", "", "/public x"])
def test_what_is_no_path_is_malformed(target: str) -> None:
    message = check("/public")
    message.attributes.request.http.path = target
    assert isinstance(parse_check(message.SerializeToString()), Malformed)


TWICE = {
    "one value": ((("x-t", "1"),), "allow"),
    "another value": ((("x-t", "2"),), "403"),
    "none": ((), "403"),
    "two values": ((("x-t", "1"), ("x-t", "2")), "403"),
    "two values, the other first": ((("x-t", "2"), ("x-t", "1")), "403"),
    "two values that a proxy joined": ((("x-t", "1,2"),), "403"),
    "one that a reader may take for it": ((("x-t", "1"), ("x_t", "2")), "403"),
}


@pytest.mark.requirement("E10")
@pytest.mark.parametrize(("headers", "want"), TWICE.values(), ids=TWICE.keys())
def test_a_header_equals_a_value_only_if_nothing_else_is_said_under_its_name(
    headers: tuple[tuple[str, str], ...], want: str
) -> None:
    held = inline("headers: [{name: X-T, value: '1'}]")
    assert word(judge(held, plain(headers=headers), Proof(), target=THROUGH)) == want
    if "x_t" not in dict(headers):
        expression = cel('request.headers["x-t"] == "1"')
        assert word(judge(expression, plain(headers=headers), Proof(), target=THROUGH)) == want


@pytest.mark.requirement("E10")
@pytest.mark.parametrize("raw", [False, True], ids=["joined", "as a list"])
def test_repeated_headers_are_all_there_in_either_form_of_a_check(raw: bool) -> None:
    message = check("/")
    http = message.attributes.request.http
    if raw:
        http.headers.clear()
        for value in (b"1", b"2"):
            http.header_map.headers.add(key="x-t", raw_value=value)
    else:
        http.headers["x-t"] = "1,2"
    asked = parse_check(message.SerializeToString())
    assert isinstance(asked, Request)
    assert asked.values("x-t") == (("1", "2") if raw else ("1,2",))
    held = inline("headers: [{name: x-t, value: '1'}]")
    assert word(judge(held, asked, Proof(), target=THROUGH)) == "403"


@pytest.mark.requirement("E15")
@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "CONNECT", "TRACE", "PoSt", "post", "POST "])
def test_methods_are_compared_to_the_letter_and_preflights_are_no_exception(method: str) -> None:
    preflight = (("origin", "https://a.example"), ("access-control-request-method", "POST"))
    for made in (inline("methods: [POST]"), cel('request.method == "POST"')):
        assert word(judge(made, plain(method=method, headers=preflight), Proof(), target=THROUGH)) == "403"
        assert word(judge(made, plain(method="POST"), Proof(), target=THROUGH)) == "allow"
    if method == "OPTIONS":
        assert word(judge(inline("methods: [OPTIONS]"), plain(method=method), Proof(), target=THROUGH)) == "allow"


CAFE = BACKEND.replace("shop", "cafe")
TO_CAFE = RequestTarget(backend=Ref("Backend", "default", "cafe"))


@pytest.mark.requirement("E17")
def test_the_context_chooses_the_policy_and_the_host_must_be_one_of_its_own() -> None:
    def hosts(name: str) -> str:
        entry = f"[{{type: Inline, hosts: [{name}.example]}}]"
        target = f"[{{kind: Backend, name: {name}}}]"
        return policy(anybody(entry), kind="XAccessPolicy", name=name, targets=target)

    made = policies(BACKEND, CAFE, hosts("shop"), hosts("cafe"))
    to_shop = RequestTarget(backend=Ref("Backend", "default", "shop"))
    got = {
        (host, str(target.backend)): word(judge(made, replace(ADD_CALL, host=f"{host}.example"), target=target))
        for host in ("shop", "cafe")
        for target in (to_shop, TO_CAFE)
    }
    assert got == {
        ("shop", "Backend/default/shop"): "allow",
        ("cafe", "Backend/default/cafe"): "allow",
        ("shop", "Backend/default/cafe"): "403",
        ("cafe", "Backend/default/shop"): "403",
    }


@pytest.mark.requirement("E17")
def test_who_is_asked_about_a_target_that_nobody_knows_cannot_tell() -> None:
    made = policies(BACKEND, policy(anybody("[{type: CEL, cel: 'true'}]")))
    for target in (TO_CAFE, RequestTarget(), RequestTarget(gateway=EDGE)):
        assert word(judge(made, ADD_CALL, workload(), target=target)) == "unavailable"


LOOKALIKES = {
    "a call that is plain": (b'{"to": "alice", "amount": 1}', "granted"),
    "capitals": (b'{"to": "alice", "amount": 1, "TO": "mallory"}', "mcp:member_lookalike"),
    "an escape": (b'{"to": "alice", "\\u0054o": "mallory"}', "mcp:member_lookalike"),
    "the other alone": (b'{"TO": "mallory"}', "mcp:member_lookalike"),
    "what no rule reads": (b'{"to": "alice", "cc": 1, "CC": 2}', "granted"),
}


@pytest.mark.requirement("P18")
@pytest.mark.parametrize(("arguments", "reason"), LOOKALIKES.values(), ids=LOOKALIKES.keys())
@pytest.mark.parametrize(
    "entries",
    [
        """[{type: CEL, cel: 'request.mcp.params.to == "alice"'}]""",
        """[{type: InlineTools, tools: [add]}, {type: CEL, cel: 'request.mcp.params.to == "bob"'}]""",
    ],
    ids=["the rule that reads it", "a rule beside it"],
)
def test_an_argument_that_a_server_could_take_for_the_one_that_was_judged_is_refused(
    entries: str, arguments: bytes, reason: str
) -> None:
    made = policies(BACKEND, policy(rule(authorization=entries)))
    assert judge(made, with_arguments(arguments), workload()).grounds.reason == reason


def test_arguments_are_not_looked_at_where_no_rule_reads_them() -> None:
    made = policies(BACKEND, policy(rule()))
    assert judge(made, with_arguments(b'{"a": 1, "A": 2}'), workload()).grounds.reason == "granted"


def with_arguments(arguments: bytes) -> Request:
    """Call the tool with these."""
    body = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "add", "arguments": %b}}'
    headers = tuple(each for each in ADD_CALL.headers if each[0] != "content-length")
    return replace(ADD_CALL, body=body % arguments, headers=headers)
