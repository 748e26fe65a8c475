"""What requests prove to policies in shadow: real signatures and certificates, and nobody is asked for them."""

from dataclasses import replace
from typing import Final

import pytest
from tests.policy.decide.test_workload_tokens import (
    BY_ACCOUNT,
    GOOD,
    REVIEWED,
    REVIEWS,
    Server,
    asked,
    projected,
    token,
)
from tests.support.issuers import svids
from tests.support.policies.compiled import policies
from tests.support.policies.documents import BACKEND, OIDC, OPEN, policy, rule, settings

from authplane.policy.attached.attachments import Policies
from authplane.policy.check.check_context import TARGET
from authplane.policy.identity.tokens.inspector import PER_SOURCE
from authplane.policy.rules.access_settings import Options
from authplane.policy.verdicts.verdict import Would

ISSUER: Final = "https://issuer.example"
SHADOW: Final = "  mode: Shadow"
BY_CERTIFICATE: Final = rule(f"{{type: SPIFFE, spiffe: '{svids.AGENT}'}}")


def world(*documents: str, options: Options | None = None) -> Policies:
    return policies(BACKEND, *documents, options=options)


def shadows(server: Server) -> list[tuple[Would, str]]:
    return [(each.would, each.reason) for each in server.told[-1].shadows]


def test_the_cluster_reviews_no_token_for_a_policy_in_shadow() -> None:
    made = world(
        policy(BY_CERTIFICATE, name="e"),
        policy(f"[{BY_ACCOUNT}]", name="s", more=SHADOW),
        settings(f"{{issuers: [{REVIEWED}]}}"),
        options=REVIEWS,
    )
    server = Server(made)
    assert server.decide(asked(projected())) == "403 no_peer_identity"
    assert (server.reviews, shadows(server)) == ([], [(Would.UNKNOWN, "token_not_reviewed")])
    assert server.decide(asked()) == "403 no_peer_identity"
    assert shadows(server) == [(Would.DENY, "no_peer_identity")]


def test_a_policy_in_shadow_hears_what_the_cluster_said_to_another() -> None:
    made = world(
        policy(f"[{BY_ACCOUNT}]", name="e"),
        policy(f"[{BY_ACCOUNT}]", name="s", more=SHADOW),
        settings(f"{{issuers: [{REVIEWED}]}}"),
        options=REVIEWS,
    )
    server = Server(made)
    assert server.decide(asked(projected()), GOOD) == "account"
    assert (len(server.reviews), shadows(server)) == (1, [(Would.ALLOW, "granted")])


@pytest.mark.slow
def test_bad_tokens_that_a_policy_in_shadow_looks_at_cost_their_sender_nothing_elsewhere() -> None:
    cafe = BACKEND.replace("name: shop}", "name: cafe}")
    made = world(
        OPEN,
        cafe,
        policy(rule(OIDC), name="s", more=SHADOW),
        policy(rule(OIDC), name="e", targets="[{kind: Backend, name: cafe}]"),
    )
    server = Server(made)
    bad = asked(token(ISSUER, "ann", signed_by="https://somebody.example"))
    for _ in range(int(PER_SOURCE.burst)):
        assert server.decide(bad) == ""
    assert shadows(server) == [(Would.DENY, "bad_token:key_unknown")]
    assert server.decide(bad) == ""
    assert shadows(server) == [(Would.UNKNOWN, "too_many_failures")]
    good = replace(asked(token(ISSUER, "ann")), context={TARGET: "Backend/default/cafe"})
    assert server.decide(good) == "rule-0"


def test_a_certificate_of_a_domain_that_only_a_policy_in_shadow_names_proves_nothing_to_others() -> None:
    far = "spiffe://far.example/a"
    made = world(
        policy(BY_CERTIFICATE, name="e"), policy(rule(f"{{type: SPIFFE, spiffe: '{far}'}}"), name="s", more=SHADOW)
    )
    server = Server(made)
    assert server.decide(asked(spiffe_id=far)) == "403 no_peer_identity"
    assert shadows(server) == [(Would.ALLOW, "granted")]


def test_a_token_of_an_issuer_that_only_a_policy_in_shadow_names_proves_nothing_to_others() -> None:
    other = OIDC.replace(ISSUER, "https://other.example")
    server = Server(world(policy(rule(other), name="e"), policy(rule(OIDC), name="s", more=SHADOW)))
    assert server.decide(asked(token(ISSUER, "ann"))) == "401 bad_token:issuer_unknown"
    assert shadows(server) == [(Would.ALLOW, "granted")]
