"""The body of a denial names the decision, and says what is wrong with the client's token."""

import json
from typing import Any

import pytest
from tests.support.issuers.keyrings import ring
from tests.support.issuers.minting import NOW, claims, signer
from tests.support.policies.callers import Proof, bearer, workload
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, SCOPED, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.judging import judge
from tests.support.policies.mcp_requests import call, request
from tests.support.policies.names import EDGE

from authplane.authserver.engine.replies import Replies
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.check.decision import Decision, Deny, Unavailable
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.bearer import EMPTY
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.token_outcome import Reason, Refused

ID = ("x-request-id", "3f6c1f6e-0d6c-9c39-8a1c-8b3a5d1b0c55")
NAMED = {"decisionId": ID[1]}
NOT_READY = Refused(reason=Reason.ISSUER_NOT_READY, issuer="https://issuer.example")
SHOP = OIDC.replace("https://issuer.example", "https://b.example")


def asked(tool: str = "add") -> Request:
    return call(tool, headers=(ID,))


def error(decision: Decision) -> dict[str, Any]:
    assert isinstance(decision, Deny | Unavailable)
    body: dict[str, Any] = json.loads(decision.body)
    assert (body["jsonrpc"], body["id"]) == ("2.0", 7)
    return dict(body["error"])


def test_every_denial_of_a_call_names_the_decision() -> None:
    cases = (
        (rule(), Proof(), 403, -32003),
        (rule(OIDC), Proof(), 401, -32004),
        (rule(SCOPED), bearer(scope="other"), 403, -32003),
        (rule(OIDC), Proof(shown=Refused(reason=Reason.TOO_MANY_FAILURES, retry_after=3)), 429, -32005),
        (rule(OIDC), Proof(shown=NOT_READY), 503, -32006),
    )
    for rules, proof, status, code in cases:
        decision = judge(policies(BACKEND, policy(rules)), asked(), proof).decision
        found = error(decision)
        assert (found["code"], found["data"]) == (code, NAMED)
        assert (decision.http_status if isinstance(decision, Deny) else 503) == status
        # What names one request is not kept for others.
        kept = Replies()
        kept.find(decision)
        assert len(kept) == 0


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (call("wipe"), 'tools/call "wipe"'),
        (call("x" * 200), f'tools/call "{"x" * 128}…"'),
        (request("resources/read", {"uri": "file:///a"}), "resources/read"),
    ],
    ids=["a tool", "a tool with a long name", "another method"],
)
def test_a_denial_says_what_is_not_granted_in_the_words_of_the_client(request_: Request, named: str) -> None:
    found = error(judge(policies(BACKEND, policy(rule())), request_, workload()).decision)
    assert found["message"] == f"Access denied. No rule grants {named} to this caller."


def test_a_refused_message_names_the_decision_beside_what_else_its_error_has() -> None:
    request = call(headers=(ID, ("mcp-protocol-version", "2030-01-01")))
    found = error(judge(policies(BACKEND, policy(rule())), request, workload()).decision)
    assert found["data"]["decisionId"] == ID[1]
    assert found["data"]["requested"] == "2030-01-01"


def test_without_jsonrpc_a_denial_names_the_decision_in_its_text() -> None:
    plain = Request(method="GET", path="/", headers=(ID,))
    through = RequestTarget(gateway=EDGE, section="web")
    targets = "[{group: gateway.networking.k8s.io, kind: Gateway, name: edge}]"
    denied = judge(policies(BACKEND, GATEWAY, policy(rule(), targets=targets)), plain, target=through).decision
    assert isinstance(denied, Deny)
    assert denied.body == f"Access denied. (decision id {ID[1]})\n"


@pytest.mark.parametrize(
    ("rules", "proof", "said"),
    [
        (
            rule(OIDC),
            Proof(shown=NOT_READY),
            'No decision: the keys of issuer "https://issuer.example" are not loaded. Retry later.',
        ),
        (
            rule(authorization=f"[{asks()}]"),
            workload(),
            "No decision: an external authorization service did not answer. Retry later.",
        ),
    ],
    ids=["keys", "a service"],
)
def test_where_there_is_no_decision_the_client_hears_why(rules: str, proof: Proof, said: str) -> None:
    decision = judge(policies(BACKEND, SERVICES, policy(rules)), asked(), proof).decision
    assert isinstance(decision, Unavailable)
    assert decision.headers == (("content-type", "application/json"),)
    assert error(decision) == {"code": -32006, "message": said, "data": NAMED}


def shown(now: float = NOW, **changed: Any) -> Proof:
    """Return what a token proves that is verified as a server does it."""
    return Proof(shown=TokenInspector(ring()).inspect(signer().token(claims(**changed)), now))


SKEW = "The allowed clock skew is 30 s."
ACCEPTED = 'Use a token from "https://b.example", "https://issuer.example".'
FAULTS = {
    "expired": (shown(exp=1_800_000_000, now=1_800_000_031),
                f"The token expired at 2027-01-15T08:00:00Z. {SKEW} Get a new token."),
    "not yet valid": (shown(nbf=1_800_000_000, now=1_799_999_969, exp=1_900_000_000),
                      f"The token is not valid before 2027-01-15T08:00:00Z. {SKEW} Check the clocks, or wait."),
    "issued in the future": (shown(iat=1_800_000_000, now=1_799_999_969, exp=1_900_000_000),
                             f"The token is not valid before 2027-01-15T08:00:00Z. {SKEW} Check the clocks, or wait."),
    "of an unknown issuer": (
        shown(iss="https://evil.example/\u202e" + "x" * 200),
        f'The token is from issuer "https://evil.example/\\u202e{"x" * 101}…", which this server does not accept. '
        f'{ACCEPTED}',
    ),
    "of another issuer": (
        bearer("https://c.example"),
        f'The token is from issuer "https://c.example", which this server does not accept. {ACCEPTED}'
    ),
    "for another audience": (
        bearer(aud=["a", "b"]), 'The token is for audience "a", "b". Use a token whose audience is "shop".'
    ),
    "for many audiences": (
        bearer(aud=list("abcdef")),
        'The token is for audience "a", "b", "c", "d" and 2 more. Use a token whose audience is "shop".',
    ),
    "for no audience": (bearer(aud=None), 'The token has no audience. Use a token whose audience is "shop".'),
    "empty": (Proof(shown=EMPTY), "The token is empty. Send a token after Bearer."),
    "badly signed": (Proof(shown=Refused(reason=Reason.SIGNATURE)), "The token is not valid. Get a new token."),
    "missing": (Proof(), "Authentication required. Send a bearer token."),
}  # fmt: skip


@pytest.mark.parametrize(("proof", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_the_client_hears_what_is_wrong_with_its_token(proof: Proof, said: str) -> None:
    made = policies(BACKEND, policy(f"[{rule(OIDC)[1:-1]}, {rule(SHOP)[1:-1]}]"))
    assert error(judge(made, asked(), proof).decision)["message"] == said


def test_audiences_are_shown_only_to_clients_with_a_valid_token() -> None:
    secret = OIDC.replace("shop", "inner-name")
    made = policies(BACKEND, policy(rule(secret)))
    for proof in (Proof(), shown(iss="https://evil.example"), shown(exp=int(NOW) - 60)):
        assert "inner-name" not in repr(judge(made, asked(), proof).decision)
    assert "inner-name" in repr(judge(made, asked(), bearer()).decision)
