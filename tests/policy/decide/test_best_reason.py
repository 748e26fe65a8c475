"""Of several reasons the one that explains a denial best is named, in the log and in the trace alike."""

from typing import NamedTuple

import pytest
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import policies
from tests.support.policies.decided_cases import READ, cel
from tests.support.policies.documents import ADD, BACKEND, OIDC, SCOPED, SPIFFE, policy
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.judging import Services, judge
from tests.support.policies.mcp_requests import ADD_CALL, call

from authplane.policy.check.request import Request
from authplane.policy.decide.decide import EXPLAINING
from authplane.policy.identity.tokens.token_outcome import Reason, Refused
from authplane.policy.verdicts.effects import Declined, NoAnswer, Outcome

FAILS = cel('identity.group == "admin"')
FALSE = cel('request.path == "/other"')
WORDED = "[{type: CEL, cel: {expression: 'request.path == \"/other\"', message: only others}}]"
EXPIRED = Proof(shown=Refused(reason=Reason.EXPIRED))


def rules(*written: tuple[str, str]) -> str:
    """Write rules, each with a source, or with none, and what it grants."""
    parts = (f"{{{f'source: {source}, ' if source else ''}authorization: {what}}}" for source, what in written)
    return f"[{', '.join(parts)}]"


class Case(NamedTuple):
    rules: str
    asked: Request
    proof: Proof
    want: tuple[str, str]
    """The rule and the reason."""
    answer: Outcome = Declined()


SUB = call("sub")
CASES = {
    "a failed expression after another tool": Case(
        rules((SPIFFE, ADD), (SPIFFE, FAILS)), SUB, workload(), ("rule-0", "tool_not_listed")
    ),
    "a failed expression before another tool": Case(
        rules((SPIFFE, FAILS), (SPIFFE, ADD)), SUB, workload(), ("rule-1", "tool_not_listed")
    ),
    "a failed expression and a false one": Case(
        rules((SPIFFE, FALSE), (SPIFFE, FAILS)), SUB, workload(), ("rule-0", "cel_false")
    ),
    "a failed expression and a rule about tools": Case(
        rules((SPIFFE, ADD), (SPIFFE, FAILS)), READ, workload(), ("rule-0", "not_a_tool_call")
    ),
    "a failed expression and a rule that grants nothing": Case(
        rules((SPIFFE, FAILS), (SPIFFE, "[]")), SUB, workload(), ("rule-0", "cel_error:no_such_key")
    ),
    "a failed expression alone": Case(rules((SPIFFE, FAILS)), SUB, workload(), ("rule-0", "cel_error:no_such_key")),
    "a false expression after another tool": Case(
        rules((SPIFFE, ADD), (SPIFFE, FALSE)), SUB, workload(), ("rule-0", "tool_not_listed")
    ),
    "a message of the author": Case(rules((SPIFFE, WORDED), (SPIFFE, ADD)), SUB, workload(), ("rule-0", "cel_false")),
    "an expired token and an expression for everybody": Case(
        rules((OIDC, ADD), ("", FAILS)), SUB, EXPIRED, ("", "bad_token:token_expired")
    ),
    "no token and a list for everybody": Case(rules((OIDC, ADD), ("", ADD)), SUB, Proof(), ("", "no_token")),
    "no certificate and a failed expression for everybody": Case(
        rules((SPIFFE, ADD), ("", FAILS)), SUB, Proof(), ("", "no_peer_identity")
    ),
    "no certificate and a list for everybody": Case(
        rules((SPIFFE, ADD), ("", ADD)), SUB, Proof(), ("rule-1", "tool_not_listed")
    ),
    "a known sender and a rule for others": Case(
        rules((SPIFFE, ADD), (OIDC, FAILS)), SUB, bearer(), ("rule-1", "cel_error:no_such_key")
    ),
    "a scope and another tool": Case(
        rules((SCOPED, ADD), (OIDC, "[{type: InlineTools, tools: [other]}]")), ADD_CALL, bearer(), ("", "scope_missing")
    ),
    "keys that are missing and a list for everybody": Case(
        rules((OIDC, ADD), ("", ADD)),
        SUB,
        Proof(shown=Refused(reason=Reason.ISSUER_NOT_READY, issuer="https://issuer.example")),
        ("", "issuer_not_ready"),
    ),
    "a service that denies": Case(
        rules((SPIFFE, f"[{asks()}]"), (SPIFFE, ADD)), SUB, workload(), ("rule-0", "external:denied")
    ),
    "a service that does not answer": Case(
        rules((SPIFFE, f"[{asks()}]"), (SPIFFE, ADD)), SUB, workload(), ("rule-0", "external:no_answer"), NoAnswer("x")
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_reason_that_explains_a_denial_best_is_named(case: Case) -> None:
    made = policies(BACKEND, SERVICES, policy(case.rules))
    verdict = judge(made, case.asked, case.proof, Services(authz=case.answer), means=EXPLAINING)
    assert (verdict.grounds.rule, verdict.grounds.reason) == case.want
    assert verdict.trace is not None
    assert [each.reason for each in verdict.trace.policies] == [case.want[1]]
