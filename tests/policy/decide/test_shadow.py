"""Policies in shadow: what they say is told, and nothing else comes of it."""

from typing import NamedTuple

import pytest
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import compiled, errors, policies
from tests.support.policies.documents import ADD, GATEWAY, OIDC, OPEN, SPIFFE, anybody, policy, rule
from tests.support.policies.documents import BACKEND as SHOP_BACKEND
from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.judging import Services, judge, word
from tests.support.policies.mcp_requests import ADD_CALL, call, request
from tests.support.policies.names import AGENT, SHOP, THROUGH_EDGE, TO_SHOP

from authplane.cel.check.expression_outcome import Outcome as CelOutcome
from authplane.core.names import Ref
from authplane.policy.check.decision import Allow
from authplane.policy.check.request import Request
from authplane.policy.compile.compile_policies import PolicyCompiler
from authplane.policy.decide.decide import EXPLAINING
from authplane.policy.decide.request_case import Means
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.rules.access_settings import Options
from authplane.policy.rules.policy_targets import PolicyTarget
from authplane.policy.rules.rule_model import Unusable
from authplane.policy.verdicts.effects import Granted
from authplane.policy.verdicts.verdict import Shadowed, Would
from authplane.sources.document_versions import Library

BACKEND = f"{OPEN}---{SHOP_BACKEND}"
SHADOW = "  mode: Shadow"
NAME = "AccessPolicy/default/s"
SCREEN = f"  action: ExternalAuth\n  externalAuth: {external()}"


def shadow(rules: str, *, name: str = "s", more: str = "", **about: str) -> str:
    return policy(rules, name=name, more=f"{SHADOW}\n{more}", **about)


class Case(NamedTuple):
    rules: str
    proof: Proof
    want: Shadowed
    asked: Request = ADD_CALL


def said(would: Would, reason: str, rule: str = "", entry: str = "", identity: str = "") -> Shadowed:
    return Shadowed(NAME, "Backend/default/shop", would, rule, entry, identity, reason)


CASES = {
    "it grants": Case(rule(), workload(), said(Would.ALLOW, "granted", "rule-0", "0:InlineTools", AGENT)),
    "it does not grant": Case(
        rule(), workload(), said(Would.DENY, "tool_not_listed", "rule-0", "0:InlineTools", AGENT), call("sub")
    ),
    "it is for somebody else": Case(rule(), Proof(), said(Would.DENY, "no_peer_identity")),
    "it has no rules": Case("[]", workload(), said(Would.DENY, "grants_nothing")),
    "a service would be asked": Case(anybody(f"[{asks()}]"), Proof(), said(Would.UNKNOWN, "external:not_asked")),
    "a service need not be asked": Case(
        rule(authorization=f"[{asks()}, {ADD[1:-1]}]"),
        workload(),
        said(Would.ALLOW, "granted", "rule-0", "1:InlineTools", AGENT),
    ),
    "keys are missing": Case(
        rule(OIDC),
        Proof(shown=Refused(reason=Reason.ISSUER_NOT_READY, issuer="https://issuer.example")),
        said(Would.UNKNOWN, "issuer_not_ready"),
    ),
    "a body that has no single meaning": Case(
        rule(),
        workload(),
        said(Would.DENY, "mcp:batch_unsupported", "rule-0", "0:InlineTools", AGENT),
        request(body=b"[]"),
    ),
    "a body that has no single meaning, and rules that do not look at it": Case(
        rule(authorization="[{type: Inline, paths: [/mcp]}]"),
        workload(),
        said(Would.DENY, "mcp:batch_unsupported"),
        request(body=b"[]"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_policy_in_shadow_says_what_it_would_do_and_denies_nothing(case: Case) -> None:
    verdict = judge(policies(BACKEND, SERVICES, shadow(case.rules)), case.asked, case.proof)
    without = judge(policies(BACKEND, SERVICES), case.asked, case.proof)
    assert verdict == without._replace(shadows=(case.want,))
    assert isinstance(verdict.decision, Allow)


def test_a_policy_in_shadow_is_asked_about_what_others_deny_too() -> None:
    made = policies(BACKEND, policy(rule(), name="e"), shadow(anybody(ADD)))
    verdict = judge(made, ADD_CALL, Proof())
    assert word(verdict) == "403"
    assert [each.would for each in verdict.shadows] == [Would.ALLOW]


def test_a_policy_in_shadow_is_asked_about_a_remembered_allowance_too() -> None:
    made = policies(
        BACKEND, policy(rule(), name="e"), shadow("[{authorization: [{type: CEL, cel: 'request.mcp.params.a > 1.0'}]}]")
    )
    verdicts = [judge(made, call("add", {"a": a}), workload()) for a in (2, 1, 2)]
    assert [word(each) for each in verdicts] == ["allow"] * 3
    assert [each.would for verdict in verdicts for each in verdict.shadows] == [Would.ALLOW, Would.DENY, Would.ALLOW]


def test_a_policy_in_shadow_speaks_after_an_external_service_was_asked_for_another() -> None:
    services = Services(authz=Granted())
    made = policies(BACKEND, SERVICES, policy(anybody(f"[{asks()}]"), name="e"), shadow(anybody(f"[{asks('authz2')}]")))
    verdict = judge(made, ADD_CALL, Proof(), services)
    assert (word(verdict), services.names) == ("allow", ["authz"])
    assert verdict.shadows == (said(Would.UNKNOWN, "external:not_asked"),)


def test_policies_in_shadow_of_a_gateway_speak_before_those_of_a_backend() -> None:
    edge = shadow(rule(), name="g", targets="[{kind: Gateway, name: edge}]")
    verdict = judge(policies(BACKEND, GATEWAY, shadow(rule()), edge), ADD_CALL, workload(), target=THROUGH_EDGE)
    assert [(each.policy, each.target) for each in verdict.shadows] == [
        ("AccessPolicy/default/g", "Gateway/default/edge"),
        (NAME, "Backend/default/shop"),
    ]


def test_the_token_goes_on_where_only_a_policy_in_shadow_looks_at_it() -> None:
    decision = judge(policies(BACKEND, shadow(rule(OIDC))), ADD_CALL, bearer()).decision
    assert isinstance(decision, Allow)
    assert "authorization" not in decision.edits.remove


KINDS = {
    "AccessPolicy": ("AccessPolicy", "v1alpha1"),
    "the first XAccessPolicy": ("XAccessPolicy", "v0alpha0"),
    "the later XAccessPolicy": ("XAccessPolicy", "v1alpha1"),
}


@pytest.mark.parametrize(("kind", "version"), KINDS.values(), ids=KINDS.keys())
def test_every_kind_of_policy_has_the_mode(kind: str, version: str) -> None:
    inline = "[{type: Inline, paths: [/other]}]"
    enforced = judge(policies(BACKEND, policy(anybody(inline), kind=kind, version=version)))
    tried = judge(policies(BACKEND, shadow(anybody(inline), kind=kind, version=version)))
    assert (word(enforced), word(tried)) == ("403", "allow")
    assert [each.would for each in tried.shadows] == [Would.DENY]


def test_a_policy_with_the_action_external_auth_asks_nobody_in_shadow() -> None:
    services = Services()
    made = policies(BACKEND, SERVICES, shadow("[]", kind="XAccessPolicy", more=SCREEN))
    verdict = judge(made, ADD_CALL, Proof(), services)
    assert (word(verdict), services.names) == ("allow", [])
    assert [each.would for each in verdict.shadows] == [Would.UNKNOWN]


def test_an_invalid_policy_in_shadow_denies_nothing_and_would_deny_everything() -> None:
    made = compiled(BACKEND, shadow("[{authorization: [{type: CEL, cel: 'nothing ='}]}]"))
    assert len(errors(made)) == 1
    verdict = judge(made.policies, ADD_CALL, workload())
    assert word(verdict) == "allow"
    assert verdict.shadows == (said(Would.DENY, "policy_unusable:InvalidCEL"),)
    [standing] = made.standings[Ref("AccessPolicy", "default", "s")].targets
    assert (standing.accepted, standing.reason) == (False, "InvalidCEL")


UNKNOWN = {"another word": "Shadwo", "another case": "shadow", "a number": "1", "nothing": "''"}


@pytest.mark.parametrize("mode", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_a_policy_whose_mode_cannot_be_read_denies(mode: str) -> None:
    made = compiled(BACKEND, policy(anybody(ADD), more=f"  mode: {mode}"))
    verdict = judge(made.policies, ADD_CALL, workload())
    assert (word(verdict), verdict.grounds.reason, verdict.shadows) == ("403", "policy_unusable:Invalid", ())


def test_a_policy_that_cannot_be_read_denies_whatever_its_mode() -> None:
    verdict = judge(compiled(BACKEND, shadow("[{sauce: 1}]")).policies, ADD_CALL, workload())
    assert (word(verdict), verdict.grounds.reason, verdict.shadows) == ("403", "policy_unusable:Invalid", ())


@pytest.mark.parametrize("mode", ["Enforce", "Shadow"])
def test_a_version_that_cannot_be_read_leaves_the_mode_of_the_last_good_one(mode: str) -> None:
    library, compiler = Library(), PolicyCompiler()
    library.changed("a.yaml", f"{BACKEND}---{policy(rule(), more=f'  mode: {mode}')}".encode())
    before = compiler.compile(library.current().resources).policies
    library.changed("a.yaml", f"{BACKEND}---{policy('[{sauce: 1}]', more='  mode: Shadow')}".encode())
    assert compiler.compile(library.current().resources).policies == before
    assert word(judge(before)) == ("403" if mode == "Enforce" else "allow")


def test_a_policy_can_be_switched_to_shadow_and_back() -> None:
    library, compiler = Library(), PolicyCompiler()
    words = []
    for mode in ("Enforce", "Shadow", "Enforce"):
        library.changed("a.yaml", f"{BACKEND}---{policy(rule(), more=f'  mode: {mode}')}".encode())
        words.append(word(judge(compiler.compile(library.current().resources).policies)))
    assert words == ["403", "allow", "403"]


def test_a_target_with_policies_in_shadow_alone_is_unprotected() -> None:
    denied = judge(policies(SHOP_BACKEND, shadow(anybody(ADD))))
    assert (word(denied), denied.grounds.reason) == ("403", "unprotected")
    assert [each.would for each in denied.shadows] == [Would.ALLOW]


def test_policies_in_shadow_take_no_room_from_those_that_are_enforced() -> None:
    tried = [shadow("[]", name=f"s{each}", created=f"2020-01-0{each + 1}T00:00:00Z") for each in range(7)]
    made = compiled(BACKEND, *tried, policy(rule(), created="2024-01-01T00:00:00Z"))
    verdict = judge(made.policies, ADD_CALL, workload())
    assert word(verdict) == "allow"
    assert [each.policy for each in verdict.shadows] == [f"AccessPolicy/default/s{each}" for each in range(5)]
    message = (
        "spec.targetRefs: Backend/default/shop already has 5 policies in shadow mode, which is the maximum, so this "
        "policy is not evaluated. Remove or merge policies."
    )
    assert errors(made) == [f"{message} [LimitPerTargetExceeded]"] * 2


def test_policies_in_shadow_take_no_room_in_a_namespace_from_those_that_are_enforced() -> None:
    tried = [shadow(rule(), name=f"s{each}", created=f"2020-01-0{each + 1}T00:00:00Z") for each in range(2)]
    made = compiled(
        BACKEND, *tried, policy(rule(), created="2024-01-01T00:00:00Z"), options=Options(most_per_namespace=2)
    )
    verdict = judge(made.policies, ADD_CALL, workload())
    assert (word(verdict), [each.policy for each in verdict.shadows]) == ("allow", ["AccessPolicy/default/s0"])
    message = (
        "metadata.namespace: Namespace 'default' already has 2 policies, which is the maximum, so this policy is not "
        "evaluated. Remove or merge policies."
    )
    assert errors(made) == [f"{message} [LimitPerNamespaceExceeded]"]


def test_a_policy_in_shadow_that_has_no_room_at_one_target_is_asked_at_none() -> None:
    cafe = SHOP_BACKEND.replace("name: shop}", "name: cafe}")
    both = "[{kind: Backend, name: shop}, {kind: Backend, name: cafe}]"
    crowd = [shadow(rule(), name=f"a{each}") for each in range(5)]
    made = compiled(BACKEND, cafe, *crowd, shadow(rule(), targets=both)).policies
    assert [
        len(made.attachments[PolicyTarget(Ref("Backend", "default", name))].shadows) for name in ("shop", "cafe")
    ] == [5, 0]


def test_unusable_policies_in_shadow_are_not_asked_without_end() -> None:
    attachment = compiled(
        BACKEND, *(shadow("[{name: a}, {name: a}]", name=f"s{each}") for each in range(9))
    ).policies.attachments
    found = attachment[PolicyTarget(SHOP)].shadows
    assert [type(each) for each in found] == [Unusable] * 5


def test_a_policy_in_shadow_for_a_listener_that_is_not_there_denies_nothing() -> None:
    made = compiled(BACKEND, GATEWAY, shadow(rule(), targets="[{kind: Gateway, name: edge, sectionName: x}]"))
    verdict = judge(made.policies, ADD_CALL, workload(), target=THROUGH_EDGE)
    assert (word(verdict), [each.reason for each in verdict.shadows]) == ("allow", ["policy_unusable:TargetNotFound"])


def test_what_a_policy_in_shadow_tries_is_explained_apart() -> None:
    verdict = judge(policies(BACKEND, policy(rule(), name="e"), shadow(rule())), ADD_CALL, workload(), means=EXPLAINING)
    assert verdict.trace is not None
    assert [each.policy for each in verdict.trace.policies] == ["AccessPolicy/default/e"]
    [told] = verdict.shadows
    assert [(each.rule, each.matched, [entry.granted for entry in each.entries]) for each in told.rules] == [
        ("rule-0", True, [True])
    ]


def test_a_fault_of_ours_in_judging_by_a_policy_in_shadow_leaves_the_decision_alone() -> None:
    def breaks(*_: object) -> CelOutcome:
        raise ZeroDivisionError

    made = policies(BACKEND, shadow(rule(authorization="[{type: CEL, cel: 'request.path == \"/mcp\"'}]")))
    verdict = judge(made, ADD_CALL, workload(), means=Means(evaluate=breaks))
    assert word(verdict) == "allow"
    assert verdict.shadows == (said(Would.UNKNOWN, "failed:ZeroDivisionError"),)


def test_a_way_has_one_way_for_each_policy_in_shadow() -> None:
    way = policies(BACKEND, policy(rule(), name="e"), shadow(rule(OIDC)), shadow(rule(), name="t")).chain(TO_SHOP)
    assert way is not None
    assert (way.uses_tokens, [each.ref.name for attachment in way.attachments for each in attachment.policies]) == (
        False,
        ["e"],
    )
    alone = [(each.uses_tokens, [found.ref.name for found in each.attachments[0].policies]) for each in way.shadows]
    assert alone == [(True, ["s"]), (False, ["t"])]


def test_only_policies_in_shadow_know_the_issuers_and_domains_that_they_alone_name() -> None:
    far = "{type: SPIFFE, spiffe: 'spiffe://far.example/a'}"
    made = policies(BACKEND, policy(rule(SPIFFE), name="e"), shadow(rule(OIDC)), shadow(rule(far), name="t"))
    assert [each.url.url for each in made.issuers] == ["https://issuer.example"]
    assert made.strangers == {"https://issuer.example"}
    assert (sorted(made.trust_domains), sorted(made.shadow_domains)) == (
        ["cluster.local"],
        ["cluster.local", "far.example"],
    )
