"""What a client hears."""

import json
import re
from typing import Any

import pytest
from envoy.service.auth.v3.external_auth_pb2 import CheckResponse
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import policies
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, SCOPED, anybody, policy, rule, settings
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.judging import Services, judge
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE, call, request
from tests.support.policies.names import THROUGH_EDGE, TO_SHOP

from authplane.authserver.engine.replies import sendable_form
from authplane.authserver.engine.wire import render_decision
from authplane.policy.attached.attachments import Policies, RequestTarget
from authplane.policy.check.decision import Decision, Deny
from authplane.policy.decide.decide import EXPLAINING
from authplane.policy.decide.denials import RpcDenial
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.verdicts.effects import Declined
from authplane.policy.verdicts.verdict import Verdict

WHERE = 'resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp"'


def denial(verdict: Verdict) -> Deny:
    assert isinstance(verdict.decision, Deny)
    assert sendable_form(verdict.decision) is verdict.decision
    return verdict.decision


def error(denied: Deny) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(denied.body)
    assert (body["jsonrpc"], set(body)) == ("2.0", {"jsonrpc", "id", "error"})
    return body


OVER = Refused(reason=Reason.TOO_MANY_FAILURES, retry_after=3)


@pytest.mark.requirement("S14")
def test_a_token_that_was_not_verified_is_429_with_a_time_to_come_again_and_never_401() -> None:
    verdict = judge(policies(BACKEND, policy(rule(OIDC))), ADD_CALL, Proof(shown=OVER))
    denied = denial(verdict)
    assert (denied.http_status, denied.headers) == (
        429,
        (("retry-after", "3"), ("content-type", "application/json")),
    )
    assert error(denied)["error"] == {
        "code": -32005,
        "message": "Too many invalid tokens from this address. Retry in 3 s.",
    }
    assert verdict.grounds.reason == "too_many_failures"


def test_a_rule_that_needs_no_token_grants_though_the_token_was_not_verified() -> None:
    held = policies(BACKEND, policy(f"[{rule(OIDC)[1:-1]}, {anybody(ADD)[1:-1]}]"))
    assert judge(held, ADD_CALL, Proof(shown=OVER)).grounds.rule == "rule-1"


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("proof", "said"),
    [
        (Proof(), ""),
        (
            Proof(shown=Refused(reason=Reason.SIGNATURE)),
            ', error="invalid_token", error_description="The token is not valid. Get a new token."',
        ),
        (
            bearer(aud="cafe"),
            """, error="invalid_token", error_description="The token is for audience 'cafe'."""
            """ Use a token whose audience is 'shop'.\"""",
        ),
    ],
    ids=["no token", "a bad one", "one for another server"],
)
def test_a_sender_without_a_usable_token_learns_where_to_get_one(proof: Proof, said: str) -> None:
    denied = denial(judge(policies(BACKEND, policy(rule(SCOPED))), INITIALIZE, proof))
    assert denied.http_status == 401
    assert (
        dict(denied.headers)["www-authenticate"] == f'Bearer realm="default/shop"{said}, scope="tools admin", {WHERE}'
    )
    assert error(denied)["id"] == 7


@pytest.mark.requirement("A3")
def test_a_sender_that_lacks_only_scopes_learns_which() -> None:
    denied = denial(judge(policies(BACKEND, policy(rule(SCOPED))), ADD_CALL, bearer(scope="x")))
    assert denied.http_status == 403
    challenge = dict(denied.headers)["www-authenticate"]
    assert challenge == f'Bearer realm="default/shop", error="insufficient_scope", scope="tools admin", {WHERE}'
    assert error(denied)["id"] == 7
    assert denied.identity == "https://issuer.example#alice"


def scoped(*scopes: str) -> str:
    return OIDC.replace("audiences: [shop]", f"audiences: [shop], scopes: [{', '.join(scopes)}]")


def challenged(made: Policies, proof: Proof, target: RequestTarget = TO_SHOP) -> str:
    """Return the scopes that a challenge names; empty if there is none."""
    denied = denial(judge(made, ADD_CALL, proof, target=target))
    assert denied.http_status == 403
    found = re.search(r'error="insufficient_scope", scope="([^"]*)"', dict(denied.headers).get("www-authenticate", ""))
    return "" if found is None else found[1]


BOTH_SCOPED = (BACKEND, policy(rule(scoped("read"))), policy(rule(scoped("tools", "admin")), name="q"))
STEPS = {
    "those of all policies": (BOTH_SCOPED, "x", "read tools admin"),
    "what the token has of the first policy": (BOTH_SCOPED, "read", "read tools admin"),
    "what the token has of the second policy": (BOTH_SCOPED, "admin", "read admin"),
    "a policy that asks for none": ((BACKEND, policy(rule(OIDC)), policy(rule(scoped("a")), name="q")), "x", "a"),
    "the same scope once": ((BACKEND, policy(rule(scoped("a"))), policy(rule(scoped("a", "b")), name="q")), "x", "a b"),
    "nothing where another policy denies anyway": (
        (BACKEND, policy(rule(scoped("a"))), policy(rule(OIDC, "[{type: InlineTools, tools: [sub]}]"), name="q")),
        "x",
        "",
    ),
    "what an external service says is not known": (
        (BACKEND, SERVICES, policy(rule(scoped("a"))), policy(rule(OIDC, f"[{asks()}]"), name="q")),
        "x",
        "a",
    ),
    "one policy, where one suffices": ((*BOTH_SCOPED, settings("{policyComposition: Any}")), "x", "read"),
}


@pytest.mark.requirement("A3")
@pytest.mark.parametrize(("documents", "scope", "named"), STEPS.values(), ids=STEPS.keys())
def test_a_challenge_names_the_scopes_of_every_policy_that_the_request_needs(
    documents: tuple[str, ...], scope: str, named: str
) -> None:
    assert challenged(policies(*documents), bearer(scope=scope)) == named


@pytest.mark.requirement("A3")
def test_a_challenge_names_the_scopes_of_gateway_and_backend_together() -> None:
    edge = policy(rule(scoped("edge")), name="e", targets="[{kind: Gateway, name: edge}]")
    made = policies(BACKEND, GATEWAY, edge, policy(rule(scoped("tools"))))
    for scope in ("x", "edge", "tools"):
        assert challenged(made, bearer(scope=scope), THROUGH_EDGE) == "edge tools"


def test_scopes_that_are_looked_for_leave_no_trace() -> None:
    made = policies(*BOTH_SCOPED)
    explained = judge(made, ADD_CALL, bearer(scope="x"), means=EXPLAINING)
    assert explained.trace is not None
    assert [each.policy for each in explained.trace.policies] == ["AccessPolicy/default/p"]


def test_scopes_are_not_asked_for_in_vain() -> None:
    denied = denial(judge(policies(BACKEND, policy(rule(SCOPED))), call("sub"), bearer(scope="x")))
    assert (denied.http_status, dict(denied.headers)) == (403, {"content-type": "application/json"})


def test_scopes_help_with_the_base_protocol_too() -> None:
    denied = denial(judge(policies(BACKEND, policy(rule(SCOPED))), INITIALIZE, bearer()))
    assert "insufficient_scope" in dict(denied.headers)["www-authenticate"]


def test_a_workload_that_a_rule_is_for_is_not_sent_for_a_token() -> None:
    both = f"{rule()[:-1]}, {rule(OIDC)[1:]}"
    assert denial(judge(policies(BACKEND, policy(both)), call("sub"), workload())).http_status == 403
    assert denial(judge(policies(BACKEND, policy(both)), call("sub"), Proof())).http_status == 401


def test_challenges_name_the_scopes_of_the_gateway_too() -> None:
    gateway = rule(OIDC.replace("audiences: [shop]", "audiences: [shop], scopes: [edge]"))
    made = policies(
        BACKEND, GATEWAY, policy(rule(SCOPED)), policy(gateway, name="g", targets="[{kind: Gateway, name: edge}]")
    )
    denied = denial(judge(made, ADD_CALL, Proof(), target=THROUGH_EDGE))
    assert 'scope="edge tools admin"' in dict(denied.headers)["www-authenticate"]


IDS: dict[str, object] = {"a number": 7, "a text": 'a\u00e9"b', "null": None}


@pytest.mark.requirement("M7")
@pytest.mark.parametrize("id_", [7, 'a\u00e9"b', 0, -1.5], ids=repr)
def test_a_denial_repeats_the_id_of_the_request(id_: object) -> None:
    denied = denial(judge(policies(BACKEND, policy(rule())), call("sub", id=id_), workload()))
    assert denied.http_status == 403
    said = 'Access denied. No rule grants tools/call "sub" to this caller.'
    assert error(denied) == {"jsonrpc": "2.0", "id": id_, "error": {"code": -32003, "message": said}}


def test_who_waits_for_no_answer_gets_a_bare_status() -> None:
    denied = denial(judge(policies(BACKEND, policy(rule())), request("notifications/x", id=None), workload()))
    assert (denied.http_status, denied.body) == (403, "")


def test_the_author_of_an_expression_may_say_why() -> None:
    cel = '[{type: CEL, cel: {expression: \'request.path == "/x"\', message: "ask ops\\u0007"}}]'
    denied = denial(judge(policies(BACKEND, policy(rule(authorization=cel))), ADD_CALL, workload()))
    assert error(denied)["error"]["message"] == "ask ops\u0007"


def test_with_the_upstream_format_a_denial_is_a_json_rpc_error_with_status_200() -> None:
    made = policies(BACKEND, policy(rule()), settings("{denialFormat: jsonrpc200}"))
    denied = denial(judge(made, call("sub"), workload()))
    assert isinstance(denied, RpcDenial)
    assert (denied.http_status, error(denied)) == (
        200,
        {"jsonrpc": "2.0", "id": 7, "error": {"code": 403, "message": "Access to this tool is forbidden."}},
    )
    assert render_decision(denied)
    bare = denial(judge(made, request("notifications/x", id=None), workload()))
    assert bare.http_status == 403
    malformed = denial(judge(made, call(body=b"[]"), workload()))
    assert malformed.http_status == 400


@pytest.mark.parametrize("body", ["", "ok", '{"jsonrpc":"2.0","id":1,"result":{}}'])
def test_nothing_but_an_error_may_be_denied_with_success(body: str) -> None:
    with pytest.raises(ValueError, match="only a JSON-RPC error"):
        RpcDenial(http_status=200, body=body, rule="x")


def test_a_denial_with_status_200_is_no_allowance_on_the_wire() -> None:
    denied: Decision = RpcDenial(http_status=200, body='{"jsonrpc":"2.0","id":1,"error":{}}', rule="x")
    assert CheckResponse.FromString(render_decision(denied)).status.code == 7


def test_the_document_of_a_backend_is_found_under_the_path_that_its_route_says() -> None:
    asked = call(path="/shop/deep", context={"authplane.resource": "/shop"})
    denied = denial(judge(policies(BACKEND, policy(rule(OIDC))), asked, Proof()))
    assert '"https://mcp.example/.well-known/oauth-protected-resource/shop"' in dict(denied.headers)["www-authenticate"]


def test_a_host_that_no_address_can_have_is_not_repeated() -> None:
    denied = denial(judge(policies(BACKEND, policy(rule(OIDC))), call(host='a"b'), Proof()))
    assert dict(denied.headers)["www-authenticate"] == 'Bearer realm="default/shop"'


def test_who_does_not_speak_mcp_is_denied_in_plain_text() -> None:
    edge = "[{kind: Gateway, name: edge}]"
    made = policies(GATEWAY, policy(rule(authorization="[{type: Inline, paths: [/x]}]"), targets=edge))
    denied = denial(judge(made, ADD_CALL, workload(), target=RequestTarget(gateway=THROUGH_EDGE.gateway)))
    assert (denied.http_status, denied.headers, denied.body) == (
        403,
        (("content-type", "text/plain; charset=utf-8"),),
        "Access denied.\n",
    )


STATUSES = {200: 403, 299: 403, 300: 403, 399: 403, 400: 400, 499: 499, 500: 403}
LEADING = STATUSES | {300: 300, 399: 399}


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_that_is_no_denial_is_not_passed_on(status: int) -> None:
    made = policies(BACKEND, SERVICES, policy(anybody(f"[{asks()}]")))
    for headers, wanted in (((), STATUSES), ((("location", "https://a"),), LEADING)):
        declined = Declined(http_status=status, headers=headers)
        denied = denial(judge(made, ADD_CALL, Proof(), Services(authz=declined)))
        assert denied.http_status == wanted[status]
