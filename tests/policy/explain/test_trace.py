"""What was tried, for people: the same decision, with its steps."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import policies
from tests.support.policies.decided_cases import CASES
from tests.support.policies.documents import ADD, BACKEND, OIDC, SPIFFE, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.judging import Services, judge
from tests.support.policies.mcp_requests import ADD_CALL, call
from tests.support.policies.names import AGENT

from authplane.cel.explain.explain_expression import Hidden
from authplane.policy.decide.decide import EXPLAINING
from authplane.policy.explain.trace import EntryTrace, PolicyTrace, RuleTrace, Trace
from authplane.policy.mcp.mcp_refusal import Fault
from authplane.policy.mcp.refusal_remedies import REMEDIES
from authplane.policy.verdicts.effects import Declined


def test_a_trace_names_policies_rules_sources_and_entries_with_what_would_help() -> None:
    made = policies(
        BACKEND, SERVICES, policy(f"[{{source: {SPIFFE}, authorization: [{ADD[1:-1]}, {asks()}]}}, {rule(OIDC)[1:]}")
    )
    verdict = judge(made, call("sub"), workload(), Services(authz=Declined()), means=EXPLAINING)
    assert verdict.trace == Trace(
        policies=(
            PolicyTrace(
                policy="AccessPolicy/default/p",
                target="Backend/default/shop",
                passed=False,
                reason="external:denied",
                rules=(
                    RuleTrace(
                        rule="rule-0",
                        source=f"SPIFFE {AGENT}",
                        matched=True,
                        identity=AGENT,
                        entries=(
                            EntryTrace(
                                entry="0:InlineTools",
                                granted=False,
                                reason="tool_not_listed",
                                hint="call one of the tools add",
                            ),
                            EntryTrace(entry="1:ExternalAuth", granted=False, reason="external:denied"),
                        ),
                    ),
                    RuleTrace(
                        rule="rule-1",
                        source="OIDC https://issuer.example for shop",
                        matched=False,
                        reason="no_token",
                        hint="use a valid token from the issuer",
                    ),
                ),
            ),
        )
    )


def test_an_expression_is_shown_part_by_part() -> None:
    made = policies(BACKEND, policy(rule(OIDC, "[{type: CEL, cel: 'identity.group == \"admin\"'}]")))
    verdict = judge(made, ADD_CALL, bearer(group="guest"), means=EXPLAINING)
    assert verdict.trace is not None
    [entry] = verdict.trace.policies[0].rules[0].entries
    assert entry.explanation is not None
    assert entry.explanation.hints
    assert [part.text for part in entry.explanation.root.parts] == ["identity.group"]


EXPLAINED: Final = {
    "a list of tools": "{type: InlineTools, tools: [add]}",
    "an expression that fails": "{type: CEL, cel: 'request.mcp.tool_name == \"add\"'}",
    "an expression that is false": "{type: CEL, cel: 'has(request.mcp.tool_name) && request.mcp.tool_name == \"add\"'}",
    "a method": "{type: Inline, mcp: {methods: [{name: tools/call, params: [add]}]}}",
}


@pytest.mark.parametrize("entry", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_an_ambiguous_message_is_explained_before_what_rules_make_of_it(entry: str) -> None:
    made = policies(BACKEND, policy(rule(authorization=f"[{entry}]")))
    twice = ADD_CALL.body.replace(b'"name"', b'"name": "wipe", "name"')
    verdict = judge(made, replace(ADD_CALL, body=twice), workload(), means=EXPLAINING)
    assert verdict.trace is not None
    [shown] = verdict.trace.policies[0].rules[0].entries
    assert (shown.reason, shown.hint, shown.explanation) == (
        "mcp:duplicate_member",
        "write each member of the message once; servers differ in which duplicate they read",
        None,
    )
    assert verdict.grounds.reason == "mcp:duplicate_member"


def test_every_refusal_has_its_remedy() -> None:
    assert set(REMEDIES) == set(Fault)
    assert all(REMEDIES.values())


def test_secrets_are_not_shown() -> None:
    made = policies(BACKEND, policy(rule(authorization='[{type: CEL, cel: \'request.headers["cookie"] == "x"\'}]')))
    verdict = judge(made, call(headers=(("cookie", "hush"),)), workload(), means=EXPLAINING)
    assert "hush" not in repr(verdict)
    assert verdict.trace is not None
    [entry] = verdict.trace.policies[0].rules[0].entries
    assert entry.explanation is not None
    assert isinstance(entry.explanation.root.parts[0].value, Hidden)


def test_a_trace_costs_nothing_unless_requested() -> None:
    assert judge(policies(BACKEND, policy(rule())), ADD_CALL, workload()).trace is None


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(name=st.sampled_from(sorted(CASES)))
def test_a_trace_changes_no_decision(name: str) -> None:
    case = CASES[name]
    made = policies(BACKEND, policy(case.rules, kind=case.kind, version=case.version))
    plain = judge(made, case.asked, case.proof)
    explained = judge(made, case.asked, case.proof, means=EXPLAINING)
    assert explained[:2] == plain[:2]
    assert explained.trace is not None
    assert (
        explained.trace.policies == ()
        or not explained.trace.policies[-1].passed
        or case.want in {"allow", "400", "413"}
    )


@pytest.mark.parametrize("proof", [Proof(), workload()], ids=["nobody", "agent"])
def test_policies_after_one_that_denies_are_not_in_the_trace(proof: Proof) -> None:
    made = policies(BACKEND, policy("[]", name="a"), policy(rule(), name="b"))
    verdict = judge(made, ADD_CALL, proof, means=EXPLAINING)
    assert verdict.trace is not None
    assert [each.policy for each in verdict.trace.policies] == ["AccessPolicy/default/a"]
