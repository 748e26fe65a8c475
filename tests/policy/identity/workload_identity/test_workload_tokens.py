from typing import Any, Final

import pytest
from tests.support.issuers.keyrings import ring, verify
from tests.support.issuers.minting import ISSUER, NOW, claims, signer

from authplane.policy.identity.tokens.token_outcome import Reason, Refused, Verified
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity, Why
from authplane.policy.identity.workload_identity.service_account import ServiceAccount
from authplane.policy.identity.workload_identity.spiffe import SpiffeId
from authplane.policy.identity.workload_identity.workload_tokens import Projected, projected_account, svid_of_token

AGENT: Final = "spiffe://example.org/ns/default/sa/agent"
AUTHORITIES: Final = {ISSUER: frozenset({"example.org"})}


def verified(**more: Any) -> Verified:
    """Verify a token with these claims, a real one; a claim that is None is left out."""
    payload = {name: value for name, value in claims(**more).items() if value is not None}
    outcome = verify(signer().token(payload), ring(), NOW)
    assert isinstance(outcome, Verified)
    return outcome


def svid(audiences: frozenset[str] = frozenset({"mcp"}), **more: Any) -> SpiffeId | Why:
    found = svid_of_token(
        verified(**{"sub": AGENT, "aud": ["mcp"], **more}), authorities=AUTHORITIES, audiences=audiences
    )
    return found.why if isinstance(found, NoIdentity) else found


ID: Final = SpiffeId("example.org", "/ns/default/sa/agent")
SVIDS: Final[dict[str, tuple[dict[str, Any], SpiffeId | Why]]] = {
    "an audience in a list": ({}, ID),
    "an audience as a text": ({"aud": "mcp"}, ID),
    "one of several audiences": ({"aud": ["other", "mcp"]}, ID),
    "no audience": ({"aud": None}, Why.AUDIENCE),
    "an empty list": ({"aud": []}, Why.AUDIENCE),
    "another audience": ({"aud": ["mcp2"]}, Why.AUDIENCE),
    "a list that is not of texts": ({"aud": [1, "mcp"]}, Why.AUDIENCE),
    "no subject": ({"sub": None}, Why.NOT_SPIFFE),
    "a subject that is no SPIFFE id": ({"sub": "alice"}, Why.NOT_SPIFFE),
    "a subject with dots": ({"sub": "spiffe://example.org/a/../b"}, Why.NOT_SPIFFE),
    "a trust domain as subject": ({"sub": "spiffe://example.org"}, Why.NO_WORKLOAD),
    "another trust domain": ({"sub": "spiffe://example.org.evil/a"}, Why.TRUST_DOMAIN),
}


@pytest.mark.requirement("threat:S11")
@pytest.mark.parametrize(("more", "want"), SVIDS.values(), ids=SVIDS.keys())
def test_a_jwt_svid_is_for_us_and_names_a_workload(more: dict[str, Any], want: SpiffeId | Why) -> None:
    assert svid(**more) == want
    # Before that, it is a token like any other.
    symmetric = signer().token(claims(sub=AGENT, aud="mcp"), header={"alg": "HS256", "kid": "k1"})
    assert verify(symmetric, ring(), NOW) == Refused(reason=Reason.ALGORITHM)


def test_without_audiences_nothing_is_for_us() -> None:
    assert svid(audiences=frozenset()) is Why.AUDIENCE


def test_an_issuer_speaks_for_its_own_trust_domains_only() -> None:
    token = verified(sub=AGENT, aud="mcp")
    others = {"https://other.example": frozenset({"example.org"})}
    assert svid_of_token(token, authorities=others, audiences={"mcp"}) == NoIdentity(Why.ISSUER)
    elsewhere = {ISSUER: frozenset({"other.org"})}
    assert svid_of_token(token, authorities=elsewhere, audiences={"mcp"}) == NoIdentity(Why.TRUST_DOMAIN)


STATED: Final = {
    "namespace": "default",
    "serviceaccount": {"name": "agent", "uid": "1"},
    "pod": {"name": "agent-1", "uid": "2"},
}
SUBJECT: Final = "system:serviceaccount:default:agent"


def projected(audiences: frozenset[str] = frozenset({"mcp"}), **more: Any) -> Projected | Why:
    token = verified(**{"sub": SUBJECT, "aud": ["mcp"], "kubernetes.io": STATED, **more})
    found = projected_account(token, issuers={ISSUER}, audiences=audiences)
    return found.why if isinstance(found, NoIdentity) else found


ACCOUNT: Final = ServiceAccount("default", "agent")
PROJECTED: Final[dict[str, tuple[dict[str, Any], Projected | Why]]] = {
    "a pod's token": ({}, Projected(account=ACCOUNT, pod="agent-1")),
    "a token of no pod": (
        {"kubernetes.io": {name: value for name, value in STATED.items() if name != "pod"}},
        Projected(account=ACCOUNT),
    ),
    "no word of the cluster": ({"kubernetes.io": None}, Why.CLAIMS),
    "a word that is none": ({"kubernetes.io": "default"}, Why.CLAIMS),
    "another namespace": ({"kubernetes.io": {**STATED, "namespace": "other"}}, Why.CLAIMS),
    "another account": ({"kubernetes.io": {**STATED, "serviceaccount": {"name": "admin"}}}, Why.CLAIMS),
    "an account that is none": ({"kubernetes.io": {**STATED, "serviceaccount": "agent"}}, Why.CLAIMS),
    "a user": ({"sub": "alice"}, Why.SUBJECT),
    "a node": ({"sub": "system:node:a"}, Why.SUBJECT),
    "no audience": ({"aud": None}, Why.AUDIENCE),
}


@pytest.mark.parametrize(("more", "want"), PROJECTED.values(), ids=PROJECTED.keys())
def test_projected_account(more: dict[str, Any], want: Projected | Why) -> None:
    assert projected(**more) == want


@pytest.mark.requirement("K02")
def test_a_token_for_the_api_server_alone_proves_nothing_to_us() -> None:
    assert projected(aud=["https://kubernetes.default.svc"]) is Why.AUDIENCE
    assert projected(audiences=frozenset()) is Why.AUDIENCE
    assert projected(aud=["https://kubernetes.default.svc", "mcp"]) == Projected(account=ACCOUNT, pod="agent-1")


def test_a_token_of_another_issuer_is_none_of_the_cluster() -> None:
    token = verified(sub=SUBJECT, aud="mcp", **{"kubernetes.io": STATED})
    found = projected_account(token, issuers={"https://kubernetes.default.svc"}, audiences={"mcp"})
    assert found == NoIdentity(Why.ISSUER)


def test_a_legacy_token_is_believed_by_no_key_alone() -> None:
    flat: dict[str, Any] = {
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/service-account.name": "agent",
    }
    assert projected(**flat) is Why.LEGACY
    legacy = {name: value for name, value in claims(sub=SUBJECT, **flat).items() if name not in {"exp", "aud"}}
    assert verify(signer().token(legacy), ring(), NOW) == Refused(reason=Reason.CLAIMS, issuer=ISSUER)
