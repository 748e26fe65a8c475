"""Policies as a backend of the authorization service, with real tokens and certificates."""

from datetime import datetime

import pytest
from tests.support.issuers import svids
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, GATEWAY, OIDC, OPEN, anybody, policy, rule
from tests.support.policies.external_services import SERVICES, asks
from tests.support.policies.judging import NOW
from tests.support.policies.mcp_requests import call
from tests.support.policies.names import AGENT, SHOP

from authplane.authserver.backends.access_policies import AccessPolicies
from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.attached.request_target import GATEWAY as GATEWAY_KEY
from authplane.policy.attached.request_target import parse_target
from authplane.policy.check.check_context import TARGET
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Peer, Request
from authplane.policy.identity.evidence import Identifier
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.verify import NotReady, Trust
from authplane.policy.verdicts.effects import Ask, Granted
from authplane.policy.verdicts.verdict import Verdict


class Nobody:
    """Knows no issuer but one that is not ready."""

    def keys_of(self, name: str) -> Trust | NotReady | None:
        return NotReady(issuer=name) if name == "https://issuer.example" else None

    def wanted(self, issuer: str, kid: str) -> None:
        raise AssertionError


CONTEXT = {TARGET: "Backend/default/shop"}


def backend() -> AccessPolicies:
    return AccessPolicies(Identifier(TokenInspector(Nobody())))


def judged(made: AccessPolicies, request: Request, now: datetime = NOW) -> Verdict:
    """Return the verdict of a backend that asks for nothing on the way."""
    verdict = made.decide(request, now)
    assert isinstance(verdict, Verdict)
    return verdict


def decided(made: AccessPolicies, request: Request, now: datetime = NOW) -> Decision:
    return judged(made, request, now).decision


def test_before_policies_are_published_nothing_is_allowed() -> None:
    assert decided(backend(), call(context=CONTEXT)) == Unavailable(cause="the policies are not loaded yet")


def test_the_route_says_which_target_a_request_is_for() -> None:
    made = backend()
    made.publish(policies(BACKEND, policy(anybody("[{type: InlineTools, tools: [add]}]"))))
    verdicts = [judged(made, each) for each in (call(context=CONTEXT), call("sub", context=CONTEXT), call())]
    assert [type(each.decision) for each in verdicts] == [Allow, Deny, Unavailable]
    assert [each.grounds.tool for each in verdicts] == ["add", "sub", ""]


def test_a_flow_goes_on_to_the_decision() -> None:
    made = backend()
    made.publish(policies(BACKEND, SERVICES, policy(anybody(f"[{asks()}]"))))
    flow = made.decide(call(context=CONTEXT), NOW)
    assert not isinstance(flow, Verdict)
    assert isinstance(next(flow), Ask)
    with pytest.raises(StopIteration) as finished:
        flow.send(Granted())
    assert isinstance(finished.value.value.decision, Allow)
    assert finished.value.value.grounds.reason == "granted"


def test_a_token_whose_issuer_is_not_ready_is_nothing_known() -> None:
    made = backend()
    made.publish(policies(BACKEND, policy(rule(OIDC))))
    # {"alg":"RS256","kid":"k"} . {"iss":"https://issuer.example"} . a signature that nobody gets to see
    text = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIn0.AAAA"
    asked = call(context=CONTEXT, headers=(("authorization", f"Bearer {text}"),))
    assert isinstance(decided(made, asked), Unavailable)


TARGETS: dict[str, tuple[str | None, str | None, RequestTarget]] = {
    "a backend": ("Backend/default/shop", None, RequestTarget(backend=SHOP)),
    "an earlier backend": ("XBackend/default/shop", None, RequestTarget(backend=Ref("XBackend", "default", "shop"))),
    "a gateway": (None, "Gateway/default/edge", RequestTarget(gateway=Ref("Gateway", "default", "edge"))),
    "both": (
        "Backend/default/shop",
        "Gateway/default/edge/web",
        RequestTarget(backend=SHOP, gateway=Ref("Gateway", "default", "edge"), section="web"),
    ),
    "neither": (None, None, RequestTarget()),
    "a backend of no kind": ("Service/default/shop", None, RequestTarget()),
    "a backend without a namespace": ("Backend/shop", "Gateway/default/edge", RequestTarget()),
    "a gateway that is a backend": ("Backend/default/shop", "Backend/default/edge", RequestTarget()),
    "too much": ("Backend/default/shop", "Gateway/a/b/c/d", RequestTarget()),
    "nothing": ("", None, RequestTarget()),
}


@pytest.mark.parametrize(("named", "gateway", "want"), TARGETS.values(), ids=TARGETS.keys())
def test_parse_target(named: str | None, gateway: str | None, want: RequestTarget) -> None:
    assert parse_target(named, gateway) == want


def test_a_gateway_is_named_by_its_own_key() -> None:
    made = backend()
    made.publish(policies(OPEN, BACKEND, GATEWAY, policy("[]", targets="[{kind: Gateway, name: edge}]")))
    assert isinstance(decided(made, call(context=CONTEXT)), Allow)
    through = CONTEXT | {GATEWAY_KEY: "Gateway/default/edge/web"}
    assert isinstance(decided(made, call(context=through)), Deny)


# --- Who is who


def test_a_certificate_is_believed_and_a_header_is_not() -> None:
    made = backend()
    made.publish(policies(BACKEND, policy(rule())))
    forged = call(context=CONTEXT, headers=(("x-forwarded-client-cert", f"URI={AGENT}"),))
    assert isinstance(decided(made, forged), Deny)
    named = call(context=CONTEXT, source=Peer(principal=AGENT))
    assert isinstance(decided(made, named), Deny)


def test_a_certificate_of_a_listed_workload_is_let_in() -> None:
    made = backend()
    made.publish(policies(BACKEND, policy(rule(f"{{type: SPIFFE, spiffe: {svids.AGENT}}}"))))
    peer = Peer(principal=svids.AGENT, certificate=svids.shown(svids.certificate(svids.uri())))
    verdict = judged(made, call(context=CONTEXT, source=peer), svids.NOW)
    assert isinstance(verdict.decision, Allow)
    assert verdict.grounds.identity == svids.AGENT
