"""Who may do what: rules, sources and entries."""

import json

import pytest
from tests.support.policies.callers import Proof, bearer, token, workload
from tests.support.policies.compiled import policies
from tests.support.policies.decided_cases import CASES, READ, Case, cel
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, OPEN, SPIFFE, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.judging import NOW, Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, INITIALIZE, LIST, call
from tests.support.policies.names import AGENT, EDGE, ISSUER, OTHER, THROUGH_EDGE, TO_SHOP

from authplane.core.names import Ref
from authplane.policy.attached.attachments import NO_POLICIES, RequestTarget
from authplane.policy.check.decision import Allow, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.verdicts.effects import Granted
from authplane.policy.verdicts.verdict import Grounds


@pytest.mark.requirement("R13", "R15", "R16", "R20", "R23", "R25", "R26", "R28", "R29", "R31", "R32", "R33", "R34")
@pytest.mark.requirement("R50", "R51", "R53", "R55", "I4", "I5", "I7", "I14", "I18", "I19", "I20")
@pytest.mark.requirement("K05", "M03", "M15", "M18", "S9", "S22", "T08", "threat:S10")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_decisions(case: Case) -> None:
    made = policies(BACKEND, policy(case.rules, kind=case.kind, version=case.version))
    assert word(judge(made, case.asked, case.proof)) == case.want


def test_a_token_is_looked_at_only_if_a_rule_needs_it() -> None:
    proof = workload()
    judge(policies(BACKEND, policy(f"{rule()[:-1]}, {rule(OIDC)[1:]}")), ADD_CALL, proof)
    assert proof.looked == 0


@pytest.mark.requirement("R24", "C16")
def test_each_rule_takes_the_identity_from_its_own_source() -> None:
    both = Proof(ids=(AGENT,), shown=token(group="admin", spiffe_id="spiffe://evil/x"))
    rules = "[{{source: {}, authorization: [{{type: CEL, cel: '{}'}}]}}]"
    id_of_claim = rules.format(SPIFFE, 'identity.spiffe_id == "spiffe://evil/x"')
    assert word(judge(policies(BACKEND, policy(id_of_claim)), ADD_CALL, both)) == "403"
    group_of_workload = rules.format(SPIFFE, 'identity.group == "admin"')
    assert word(judge(policies(BACKEND, policy(group_of_workload)), ADD_CALL, both)) == "403"
    group_of_token = rules.format(OIDC, 'identity.group == "admin"')
    assert word(judge(policies(BACKEND, policy(group_of_token)), ADD_CALL, both)) == "allow"


# --- What is allowed goes on without what was only for us


@pytest.mark.requirement("S20", "S21", "A5")
def test_the_clients_token_and_its_words_about_itself_go_no_further() -> None:
    asked = call(headers=(("x-forwarded-client-cert", "URI=spiffe://td/admin"), ("x-remote_user", "root")))
    verdict = judge(policies(BACKEND, policy(rule(OIDC))), asked, bearer())
    assert isinstance(verdict.decision, Allow)
    edits = verdict.decision.edits
    assert edits.set == ()
    assert {"authorization", "x-forwarded-client-cert", "x_forwarded_client_cert", "x-remote_user"} <= set(edits.remove)


def test_a_header_that_no_rule_looks_at_is_left_alone() -> None:
    verdict = judge(policies(BACKEND, policy(rule())), ADD_CALL, workload())
    assert isinstance(verdict.decision, Allow)
    assert "authorization" not in verdict.decision.edits.remove


# --- What the log says


def test_the_grounds_of_a_decision_name_policy_rule_entry_identity_method_and_tool() -> None:
    made = policies(BACKEND, policy(f"[{{name: agents, source: {SPIFFE}, authorization: {ADD}}}]"))
    name = "AccessPolicy/default/p"
    assert judge(made, ADD_CALL, workload()).grounds == Grounds(
        name, "agents", "0:InlineTools", AGENT, "tools/call", "add", "granted"
    )
    assert judge(made, call("sub"), workload()).grounds == Grounds(
        name, "agents", "0:InlineTools", AGENT, "tools/call", "sub", "tool_not_listed"
    )
    assert judge(made, LIST, workload()).grounds == Grounds(
        name, "agents", "base_protocol", AGENT, "tools/list", "", "base_protocol"
    )
    assert judge(made, READ, Proof()).grounds == Grounds(name, "", "", "", "resources/read", "", "no_peer_identity")


STRANGERS = {
    "a workload that no rule lists": (rule(), Proof(ids=(OTHER,)), OTHER, "peer_not_listed"),
    "one of many that no rule lists": (
        f"[{', '.join([rule()[1:-1]] * 4)}]",
        Proof(ids=(OTHER,)),
        OTHER,
        "peer_not_listed",
    ),
    "a token for another audience": (rule(OIDC), Proof(shown=token(aud="other")), f"{ISSUER}#alice", "other_audience"),
    "a certificate where rules want tokens": (rule(OIDC), Proof(ids=(OTHER,)), "", "no_token"),
    "nothing": (rule(), Proof(), "", "no_peer_identity"),
}


@pytest.mark.parametrize(("rules", "proof", "identity", "reason"), STRANGERS.values(), ids=STRANGERS.keys())
def test_the_log_names_a_sender_that_no_rule_accepts(rules: str, proof: Proof, identity: str, reason: str) -> None:
    verdict = judge(policies(BACKEND, policy(rules)), ADD_CALL, proof)
    assert (verdict.grounds.identity, verdict.grounds.reason) == (identity, reason)
    assert isinstance(verdict.decision, Deny)
    assert verdict.decision.identity == identity


@pytest.mark.requirement("S16")
def test_an_expression_that_fails_is_named_so_that_it_can_be_counted() -> None:
    made = policies(BACKEND, policy(rule(OIDC, cel('identity.group == "admin"'))))
    verdict = judge(made, ADD_CALL, bearer(secret="hush"))
    assert verdict.grounds == Grounds(
        "AccessPolicy/default/p",
        "rule-0",
        "0:CEL",
        f"{ISSUER}#alice",
        "tools/call",
        "add",
        "cel_error:no_such_key",
        ("AccessPolicy/default/p rule-0 0:CEL no_such_key",),
    )
    assert "hush" not in repr(verdict)


def test_which_check_of_a_token_failed_is_in_the_log_and_not_in_the_answer() -> None:
    verdict = judge(policies(BACKEND, policy(rule(OIDC))), ADD_CALL, Proof(shown=Refused(reason=Reason.SIGNATURE)))
    assert verdict.grounds.reason == "bad_token:signature_wrong"
    assert isinstance(verdict.decision, Deny)
    assert "signature" not in repr((verdict.decision.headers, verdict.decision.body))


# --- Targets


@pytest.mark.requirement("R30")
def test_a_backend_without_a_policy_is_closed_unless_a_setting_opens_it() -> None:
    open_, shut = policies(BACKEND, GATEWAY, OPEN), policies(BACKEND, GATEWAY)
    for target in (TO_SHOP, THROUGH_EDGE):
        assert word(judge(open_, target=target)) == "allow"
        denied = judge(shut, target=target)
        assert (word(denied), denied.grounds.reason) == ("403", "unprotected")
        assert isinstance(denied.decision, Deny)
        assert json.loads(denied.decision.body)["error"]["message"] == "Access denied. No policy protects this server."


@pytest.mark.requirement("R30")
def test_a_service_behind_a_gateway_without_a_policy_is_open() -> None:
    for made in (policies(BACKEND, GATEWAY), policies(BACKEND, GATEWAY, OPEN)):
        assert word(judge(made, target=RequestTarget(gateway=EDGE, section="web"))) == "allow"


@pytest.mark.requirement("R30")
def test_a_policy_of_the_gateway_protects_a_backend_without_one() -> None:
    made = policies(BACKEND, GATEWAY, policy(rule(), targets="[{kind: Gateway, name: edge}]"))
    assert word(judge(made, ADD_CALL, workload(), target=THROUGH_EDGE)) == "allow"
    assert word(judge(made, target=THROUGH_EDGE)) == "403"
    assert judge(made, ADD_CALL, workload(), target=TO_SHOP).grounds.reason == "unprotected"


UNKNOWN = {
    "no such backend": RequestTarget(backend=Ref("Backend", "default", "gone")),
    "the backend of another kind": RequestTarget(backend=Ref("XBackend", "default", "shop")),
    "no such gateway": RequestTarget(
        backend=Ref("Backend", "default", "shop"), gateway=Ref("Gateway", "default", "gone")
    ),
    "no such listener": RequestTarget(gateway=Ref("Gateway", "default", "edge"), section="gone"),
    "nowhere": RequestTarget(),
}


@pytest.mark.parametrize("target", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_nothing_is_known_of_a_target_that_is_not_known(target: RequestTarget) -> None:
    verdict = judge(policies(BACKEND, GATEWAY), target=target)
    assert verdict.decision == Unavailable(cause="the target of the request is not known")


def test_before_the_first_policies_nothing_is_known() -> None:
    assert word(judge(NO_POLICIES)) == "unavailable"


@pytest.mark.requirement("R50")
def test_on_the_way_to_something_else_than_an_mcp_server_no_tool_is_granted() -> None:
    made = policies(GATEWAY, policy(rule(), targets="[{kind: Gateway, name: edge}]"))
    gateway = RequestTarget(gateway=Ref("Gateway", "default", "edge"))
    verdict = judge(made, ADD_CALL, workload(), target=gateway)
    assert (word(verdict), verdict.grounds.reason) == ("403", "not_an_mcp_request")
    expression = policy(
        rule(authorization=cel('request.mcp.method == "tools/call"')), targets="[{kind: Gateway, name: edge}]"
    )
    assert word(judge(policies(GATEWAY, expression), ADD_CALL, workload(), target=gateway)) == "403"


# --- External services


@pytest.mark.requirement("R6B")
@pytest.mark.parametrize("asked", [ADD_CALL, INITIALIZE, READ], ids=["a tool", "base", "a resource"])
def test_a_service_for_every_source_gets_every_request(asked: Request) -> None:
    made = policies(BACKEND, SERVICES, policy(anybody(f"[{asks()}]")))
    services = Services(authz=Granted())
    assert word(judge(made, asked, Proof(), services)) == "allow"
    assert services.names == ["authz"]
    assert word(judge(made, asked, Proof(), Services())) == "unavailable"


def test_an_external_auth_policy_calls_the_service_for_all_selected_senders() -> None:
    action = f"  action: ExternalAuth\n  externalAuth: {external()}"
    made = policies(BACKEND, SERVICES, policy(f"[{{source: {SPIFFE}}}]", kind="XAccessPolicy", more=action))
    services = Services(authz=Granted())
    assert word(judge(made, ADD_CALL, workload(OTHER), services)) == "allow"
    assert services.names == []
    assert word(judge(made, ADD_CALL, workload(), services)) == "allow"
    assert services.names == ["authz"]
    [ask] = services.asked
    assert ask.deadline == NOW.timestamp() + 5


UNFIT = {
    "a NUL": ({"a": "b\0c"}, "nul_in_input"),
    "a NUL in a name": ({"a": "b", "c\0": "d"}, "nul_in_input"),
    "a NUL further down": ({"a": ["b", {"c": "\0"}]}, "nul_in_input"),
    "the first integer that is too large": ({"a": 2**63}, "number_out_of_range"),
    "the first that is too small": ({"a": -(2**63) - 1}, "number_out_of_range"),
    "the largest integer": ({"a": 2**63 - 1}, "no_such_overload"),
    "the smallest": ({"a": -(2**63)}, "no_such_overload"),
}


@pytest.mark.parametrize(("arguments", "code"), UNFIT.values(), ids=UNFIT.keys())
def test_no_expression_sees_arguments_that_it_could_mistake_for_others(arguments: dict[str, object], code: str) -> None:
    made = policies(BACKEND, policy(rule(authorization=cel('request.mcp.params.a.startsWith("b")'))))
    verdict = judge(made, call(arguments=arguments), workload())
    assert word(verdict) == "403"
    assert [each.rpartition(" ")[2] for each in verdict.grounds.failures] == [code]
    named = policies(BACKEND, policy(rule(authorization=cel('request.mcp.tool_name == "add"'))))
    assert word(judge(named, call(arguments=arguments), workload())) == "allow"
