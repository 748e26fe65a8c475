"""Lines of Envoy's access log, as a person reads them."""

import io
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from rich.console import Console
from rich.text import Text

from authplane.cli.shared.access_lines import is_access, json_record, request_line
from authplane.cli.shared.console import print_hanging
from authplane.devkit.local.joined_requests import JoinedRequest
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.verdicts.verdict import Grounds, Shadowed, Verdict, Would

ID = "enforced_effective_policy_id"
BOTH = {
    "policy_0_shadow_effective_policy_id": "shop/a.v1/r/0:CEL",
    "policy_0_shadow_engine_result": "allowed",
    "policy_1_shadow_effective_policy_id": "shop/b/r/base",
}


class Case(NamedTuple):
    record: dict[str, Any]
    want: str


CASES = {
    "a rule of Envoy": Case({"decided": {ID: "shop/a.v1/r/0:CEL"}}, "allowed by Envoy with shop/a.v1/r/0:CEL"),
    "rules of several policies": Case(
        {"decided": {ID: "native/all", **BOTH}}, "allowed by Envoy with shop/a.v1/r/0:CEL and shop/b/r/base"
    ),
    "who is asked about was not decided in Envoy": Case(
        {"decided": {ID: "~ask", **BOTH}}, "allowed by the authorization service"
    ),
    "what Envoy never judges": Case(
        {"decided": {ID: "!ask"}},
        "allowed by the authorization service; Envoy does not decide this kind of request itself",
    ),
    "what Envoy never judges, denied": Case(
        {"decided": {ID: "!ask"}, "details": "ext_authz_denied"},
        "denied by the authorization service; Envoy does not decide this kind of request itself",
    ),
    "nobody was asked": Case({"decided": None}, "allowed by the authorization service"),
    "denied in Envoy": Case(
        {"details": "rbac_access_denied_matched_policy[none]", "policies": "shop/a.v1 shop/b"},
        "denied by Envoy: no rule of shop/a.v1 or shop/b grants the request",
    ),
    "denied in Envoy as somebody known": Case(
        {"details": "rbac_access_denied_matched_policy[known]", "policies": "shop/b", "decided": {ID: "known"}},
        "denied by Envoy: no rule of shop/b grants the request",
    ),
    "denied in Envoy by nobody knows which": Case(
        {"details": "rbac_access_denied_matched_policy[none]", "policies": None},
        "denied by Envoy: no rule grants the request",
    ),
    "denied in Envoy as somebody unknown": Case(
        {"details": "rbac_access_denied_matched_policy[none]", "policies": "shop/b", "status": 401},
        "denied by Envoy: no rule of shop/b grants the request, which has no valid identity",
    ),
    "a large body": Case(
        {"details": "request_payload_too_large", "status": 413},
        "rejected by Envoy before it evaluated policies: the body is too large",
    ),
    "a token that cannot be read": Case(
        {"details": "jwt_authn_access_denied"},
        "rejected by Envoy before it evaluated policies: jwt_authn_access_denied",
    ),
    "denied elsewhere": Case({"details": "ext_authz_denied"}, "denied by the authorization service"),
    "no answer": Case(
        {"details": "ext_authz_error", "decided": {ID: "!ask"}}, "rejected: the authorization service made no decision"
    ),
    "no check": Case({"authorization": "unprotected"}, "unprotected"),
    "a check that is not heeded": Case(
        {"authorization": "shadow"}, "not enforced: authorization is in shadow mode on this route"
    ),
    "a wrong path": Case(
        {"status": 404, "details": "route_not_found", "authorization": None},
        "not found: no route of Envoy has this host and path",
    ),
    "to https": Case({"status": 301, "details": "direct_response", "authorization": None}, "redirected to HTTPS"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_line_says_who_decided(case: Case) -> None:
    common = {"time": "2026-01-01T10:20:30.123Z", "method": "POST", "host": "h", "path": "/[p]", "duration": 3}
    usual = {"status": 200, "details": "via_upstream", "authorization": "enforced"}
    record = common | usual | case.record
    assert plain(JoinedRequest(record=record)) == f"10:20:30 {record['status']} POST h/[p]: {case.want} 3ms"


NATIVE = {
    "a token": ({"issuer": "https://idp", "subject": "ann"}, "denied to https://idp#ann by Envoy"),
    "a certificate": ({"spiffe_id": "spiffe://a/b", "issuer": None}, "denied to spiffe://a/b by Envoy"),
    "nobody": ({"issuer": None, "subject": None, "spiffe_id": None}, "denied by Envoy"),
}


@pytest.mark.parametrize(("sender", "want"), NATIVE.values(), ids=NATIVE.keys())
def test_the_line_of_a_native_denial_names_the_call_and_the_sender(sender: dict[str, Any], want: str) -> None:
    call = {"mcp_method": "tools/call", "mcp_name": "[wipe]", "details": "rbac_access_denied_matched_policy[known]"}
    record = RECORD | call | sender | {"status": 403, "policies": "shop/a"}
    said = f"{want}: no rule of shop/a grants the request 3ms"
    assert plain(JoinedRequest(record=record)) == f"10:20:30 403 POST h:1/mcp tools/call [wipe]: {said}"


def test_a_native_denial_without_a_valid_identity_names_no_sender() -> None:
    details = {"details": "rbac_access_denied_matched_policy[none]", "issuer": "https://idp", "subject": "ann"}
    assert ": denied by Envoy: no rule grants the request, which has no valid identity 3ms" in plain(
        JoinedRequest(record=RECORD | details | {"status": 401})
    )


def plain(joined: JoinedRequest) -> str:
    return "".join(Text.from_markup(each).plain for each in request_line(joined, NOW))


NOW = datetime(2026, 1, 1, 10, 20, 31, tzinfo=UTC)
RECORD = {
    "time": "2026-01-01T10:20:30.1Z",
    "method": "POST",
    "host": "h:1",
    "path": "/mcp",
    "duration": 3,
    "status": 200,
}
CALL = Grounds(policy="AccessPolicy/a/p", mcp_method="tools/call", tool="add", reason="granted")
SHADOW = Shadowed(policy="AccessPolicy/a/new", target="t", would=Would.DENY, reason="tool_not_listed")


class Decided(NamedTuple):
    decision: Decision
    grounds: Grounds
    want: str


DECIDED = {
    "granted": Decided(
        Allow(),
        CALL._replace(rule="people", entry="0:InlineTools", identity="https://idp#ann"),
        "granted to https://idp#ann by AccessPolicy/a/p, rule people, entry 0:InlineTools",
    ),
    "denied to a known sender": Decided(
        Deny(http_status=403, rule="r"),
        CALL._replace(rule="people", identity="https://idp#ann", reason="tool_not_listed"),
        "denied to https://idp#ann: tool_not_listed (AccessPolicy/a/p, rule people)",
    ),
    "denied to an unknown sender": Decided(
        Deny(http_status=401, rule="r"), CALL._replace(reason="no_token"), "denied: no_token (AccessPolicy/a/p)"
    ),
    "no decision": Decided(
        Unavailable(cause="keys"),
        CALL._replace(reason="issuer_not_ready"),
        "no decision: issuer_not_ready (AccessPolicy/a/p)",
    ),
}


@pytest.mark.parametrize("case", DECIDED.values(), ids=DECIDED.keys())
def test_the_line_of_a_decided_request_names_call_identity_policy_rule_and_reason(case: Decided) -> None:
    joined = JoinedRequest(record=RECORD, request=REQUEST, verdict=Verdict(case.decision, case.grounds))
    assert plain(joined) == f"10:20:30 200 POST h:1/mcp tools/call add: {case.want} 3ms"


REQUEST = Request(method="POST", host="h:1", path="/mcp")


def test_the_host_is_what_the_client_sent_not_what_the_backend_gets() -> None:
    joined = JoinedRequest(record=RECORD | {"host": "backend:7000"}, request=REQUEST, verdict=Verdict(Allow(), CALL))
    assert " POST h:1/mcp tools/call add: " in plain(joined)


def test_policies_in_shadow_are_on_the_same_line() -> None:
    joined = JoinedRequest(record=RECORD, request=REQUEST, verdict=Verdict(Allow(), CALL, shadows=(SHADOW,)))
    assert "granted by AccessPolicy/a/p; shadow mode: AccessPolicy/a/new would deny" in plain(joined)


def test_an_open_request_has_no_status_yet() -> None:
    joined = JoinedRequest(record=None, request=REQUEST, verdict=Verdict(Allow(), CALL))
    assert plain(joined) == "10:20:31 ... POST h:1/mcp tools/call add: granted by AccessPolicy/a/p still open"


def test_a_backend_that_does_not_respond_is_named_after_the_decision() -> None:
    record = RECORD | {"status": 503, "details": "upstream_reset_before_response_started{connection_failure}"}
    line = plain(JoinedRequest(record=record, request=REQUEST, verdict=Verdict(Allow(), CALL)))
    assert line.endswith(
        "; no response from the backend (upstream_reset_before_response_started{connection_failure}) 3ms"
    )


IDENTIFIED = Request(method="POST", host="h:1", path="/mcp", headers=(("x-request-id", "3f6c1f6e-0d6c-9c39"),))


def test_a_denial_shows_the_start_of_the_decision_id_that_the_client_got() -> None:
    denied = Verdict(Deny(http_status=403, rule="r"), CALL._replace(reason="tool_not_listed"))
    record = RECORD | {"status": 403, "request_id": "3f6c1f6e-0d6c-9c39"}
    assert plain(JoinedRequest(record=record, request=IDENTIFIED, verdict=denied)).endswith(" 3ms id 3f6c1f6e")
    assert plain(JoinedRequest(record=record | {"details": "rbac_access_denied"})).endswith(" 3ms id 3f6c1f6e")
    granted = JoinedRequest(record=record | {"status": 200}, request=IDENTIFIED, verdict=Verdict(Allow(), CALL))
    assert plain(granted).endswith(" 3ms")
    assert plain(JoinedRequest(record=record | {"status": 200})).endswith(" 3ms")


def test_the_end_of_a_stream_has_the_time_of_its_end() -> None:
    joined = JoinedRequest(record=RECORD | {"duration": 61_000}, request=REQUEST, verdict=Verdict(Allow(), CALL))
    assert plain(joined).startswith("10:21:31 200 ")


def test_a_terminal_of_80_columns_shows_a_hanging_indent_and_other_output_one_line() -> None:
    lead, text = "10:20:30 200 ", "word " * 30
    narrow, pipe = io.StringIO(), io.StringIO()
    print_hanging(lead, text, Console(file=narrow, width=80, force_terminal=True, color_system=None))
    print_hanging(lead, text, Console(file=pipe, width=80, soft_wrap=True))
    lines = narrow.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert [line[:18] for line in lines] == ["10:20:30 200 word ", *["             word "] * (len(lines) - 1)]
    assert len(lines) > 1
    assert len(pipe.getvalue().splitlines()) == 1


@pytest.mark.parametrize("text", ["", "[]", "{", '{"level": "info"}', "[" * 100_000], ids=len)
def test_what_is_no_line_of_the_access_log_is_left_to_others(text: str) -> None:
    assert not is_access(json_record(text))


def test_a_native_denial_with_the_status_200_has_its_id() -> None:
    denied = {"details": "rbac_access_denied_matched_policy[none]", "request_id": "0123456789"}
    assert plain(JoinedRequest(record=RECORD | denied)).endswith("no rule grants the request 3ms id 01234567")
