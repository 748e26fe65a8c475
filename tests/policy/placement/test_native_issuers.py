"""Whose keys Envoy may have to be given."""

from typing import Final, NamedTuple

import pytest
from tests.support.policies.compiled import compiled
from tests.support.policies.documents import ADD, BACKEND, GATEWAY, OIDC, SPIFFE, policy, rule, settings
from tests.support.policies.external_services import SERVICES, external
from tests.support.policies.names import ISSUER, THROUGH_EDGE, TO_SHOP

from authplane.policy.attached.attachments import Policies
from authplane.policy.placement.native_issuers import native_issuers
from authplane.policy.placement.placement_model import Choices
from authplane.policy.placement.placement_plan import place_chain
from authplane.policy.rules.rule_model import Oidc

EDGE: Final = "[{kind: Gateway, name: edge}]"
GET: Final = "[{type: CEL, cel: {expression: 'request.method == \"GET\"'}}]"
CALL_OUT: Final = settings("{placement: CallOut}")
CHOSEN: Final = BACKEND.replace("{name: shop}", "{name: shop, annotations: {authplane.dev/placement: CallOut}}")
SCREEN: Final = policy(
    "[]", name="s", kind="XAccessPolicy", more=f"  action: ExternalAuth\n  externalAuth: {external()}"
)


class Case(NamedTuple):
    documents: tuple[str, ...]
    want: list[str]


CASES: Final = {
    "no policies": Case((BACKEND,), []),
    "tools are Envoy's": Case((BACKEND, policy(rule(OIDC))), [ISSUER]),
    "everything is the server's": Case((BACKEND, CALL_OUT, policy(rule(OIDC))), []),
    "the backend leaves everything to the server": Case((CHOSEN, policy(rule(OIDC))), []),
    "a policy in shadow beside one that is enforced": Case(
        (BACKEND, policy(rule(SPIFFE)), policy(rule(OIDC), name="s", more="  mode: Shadow")), [ISSUER]
    ),
    "only workloads": Case((BACKEND, policy(rule(SPIFFE))), []),
    "an external service is asked about everything": Case(
        (BACKEND, SERVICES, policy(rule(OIDC)), SCREEN),
        [],
    ),
    "an issuer with two names": Case(
        (BACKEND, policy(rule(OIDC.replace("https://", "")))),
        [],
    ),
    "a clock skew that Envoy cannot have": Case(
        (BACKEND, settings(f"{{issuers: [{{url: '{ISSUER}', clockSkew: 0s}}]}}"),
         policy(rule(OIDC))),
        [],
    ),
    "the Gateway's rules read no body": Case((BACKEND, GATEWAY, policy(rule(OIDC, GET), targets=EDGE)), [ISSUER]),
    "of two issuers the server has one": Case(
        (BACKEND, policy(
            f"[{{source: {OIDC}, authorization: {ADD}}}, "
            f"{{source: {OIDC.replace('https://issuer', 'other')}, authorization: {ADD}}}]"
        )),
        [ISSUER],
    ),
    "nothing is allowed at all": Case((BACKEND, settings("{trustDomain: 7}"), policy(rule(OIDC))), []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_keys_are_fetched_for_envoy_only_from_issuers_whose_tokens_it_may_verify(case: Case) -> None:
    made = compiled(*case.documents).policies
    found = native_issuers(made)
    assert [each.url.url for each in found] == case.want
    assert set(found) <= set(made.issuers)
    assert _placed(made) <= {each.url.url for each in found}


def _placed(made: Policies) -> set[str]:
    """Return the issuers whose tokens Envoy verifies on its way to somebody."""
    ways = [] if made.closed else [way for target in (TO_SHOP, THROUGH_EDGE) if (way := made.chain(target)) is not None]
    plans = [place_chain(way, made.settings, Choices()) for way in ways]
    policies = [each for plan in plans for attachment in plan.attachments for each in attachment.policies]
    sources = [entry.source for each in policies for entry in each.native]
    return {source.issuer.url for source in sources if isinstance(source, Oidc)}
