"""Lines of Envoy's access log, as a person reads them."""

import json
from typing import Any, NamedTuple

import pytest
from rich.text import Text

from authplane.cli.shared.access_lines import access_line

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
        {"decided": {ID: "!ask"}}, "allowed by the authorization service, because Envoy does not decide such requests"
    ),
    "what Envoy never judges, denied": Case(
        {"decided": {ID: "!ask"}, "details": "ext_authz_denied"},
        "denied by the authorization service, because Envoy does not decide such requests",
    ),
    "too large": Case(
        {"status": 413, "details": "direct_response", "authorization": None},
        "rejected by Envoy before any policy: body is larger than maxRequestBody",
    ),
    "nobody was asked": Case({"decided": None}, "allowed by the authorization service"),
    "denied in Envoy": Case(
        {"details": "rbac_access_denied_matched_policy[none]", "policies": "shop/a.v1 shop/b"},
        "denied by Envoy: no rule of shop/a.v1 or shop/b grants it",
    ),
    "denied in Envoy as somebody known": Case(
        {"details": "rbac_access_denied_matched_policy[known]", "policies": "shop/b", "decided": {ID: "known"}},
        "denied by Envoy: no rule of shop/b grants it",
    ),
    "denied in Envoy by nobody knows which": Case(
        {"details": "rbac_access_denied_matched_policy[none]", "policies": None},
        "denied by Envoy: no rule grants it",
    ),
    "denied in Envoy as somebody unknown": Case(
        {"details": "rbac_access_denied_matched_policy[none]", "policies": "shop/b", "status": 401},
        "denied by Envoy: no rule of shop/b grants it, and the request has no valid identity",
    ),
    "not as MCP clients ask": Case(
        {"details": "mcp_reject_no_mcp"},
        "rejected by Envoy before any policy: mcp_reject_no_mcp, method, Content-Type or Accept is not valid in MCP",
    ),
    "not a message": Case(
        {"details": "mcp_parse_error"},
        "rejected by Envoy before any policy: mcp_parse_error, body is too large or not JSON",
    ),
    "a token that cannot be read": Case(
        {"details": "jwt_authn_access_denied"}, "rejected by Envoy before any policy: jwt_authn_access_denied"
    ),
    "denied elsewhere": Case({"details": "ext_authz_denied"}, "denied by the authorization service"),
    "no answer": Case(
        {"details": "ext_authz_error", "decided": {ID: "!ask"}}, "rejected: the authorization service made no decision"
    ),
    "no check": Case({"authorization": "unprotected"}, "unprotected"),
    "a check that is not heeded": Case(
        {"authorization": "shadow"}, "not enforced: authorization is in shadow mode on this route"
    ),
    "to https": Case({"status": 301, "details": "direct_response", "authorization": None}, "redirected to HTTPS"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_line_says_who_decided(case: Case) -> None:
    common = {"time": "2026-01-01T10:20:30.123Z", "method": "POST", "host": "h", "path": "/[p]", "duration": 3}
    usual = {"status": 200, "details": "via_upstream", "authorization": "enforced"}
    record = common | usual | case.record
    line = access_line(json.dumps(record))
    assert line is not None
    assert Text.from_markup(line).plain == f"10:20:30 {record['status']} POST h /[p]  {case.want} 3 ms"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"level": "info"}', "[" * 100_000], ids=len)
def test_what_is_no_line_of_the_access_log_is_left_to_others(text: str) -> None:
    assert access_line(text) is None
