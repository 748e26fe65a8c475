"""What an AuthplaneConfiguration may say of issuers whose tokens stand for workloads."""

from typing import Final

import pytest

from authplane.resources.kinds.policy_settings import Issuer, JwtSvids, ServiceAccountTokens
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library


def load(issuer: str) -> Loaded:
    library = Library()
    text = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec:
  issuers:
  - {issuer}
"""
    library.changed("a.yaml", text.encode())
    return library.current()


def test_issuer_settings_have_token_types_and_audiences() -> None:
    svids = "{url: https://a, jwtSvids: {trustDomain: example.org, audiences: [shop]}}"
    accounts = "{url: https://b, serviceAccounts: {audiences: [shop, other]}}"
    configuration = load(f"{svids}\n  - {accounts}").resources.configuration
    assert configuration is not None
    assert configuration.spec.issuers == (
        Issuer(url="https://a", jwt_svids=JwtSvids(trust_domain="example.org", audiences=("shop",))),
        Issuer(
            url="https://b",
            service_accounts=ServiceAccountTokens(audiences=("shop", "other"), verification="TokenReview"),
        ),
    )


WRONG: Final[dict[str, tuple[str, list[str]]]] = {
    "nothing of what is needed": (
        "{url: https://a, jwtSvids: {trustDomain: Example.org}, serviceAccounts: {}}",
        [
            "spec.issuers[0].jwtSvids.trustDomain FieldInvalid",
            "spec.issuers[0].jwtSvids.audiences FieldRequired",
            "spec.issuers[0].serviceAccounts.audiences FieldRequired",
        ],
    ),
    "no audience, and too many": (
        "{url: https://a, jwtSvids: {trustDomain: a, audiences: []}, "
        f"serviceAccounts: {{audiences: {['x'] * 17}}}}}",
        ["spec.issuers[0].jwtSvids.audiences FieldInvalid", "spec.issuers[0].serviceAccounts.audiences FieldInvalid"],
    ),
    "an audience without a letter": (
        "{url: https://a, serviceAccounts: {audiences: ['']}}",
        ["spec.issuers[0].serviceAccounts.audiences[0] FieldInvalid"],
    ),
    "words that nobody knows": (
        "{url: https://a, jwtSvid: {}, serviceAccounts: {audience: a, audiences: [a], verification: JWKS}}",
        [
            "spec.issuers[0].jwtSvid FieldUnknown",
            "spec.issuers[0].serviceAccounts.audience FieldUnknown",
            "spec.issuers[0].serviceAccounts.verification FieldInvalid",
        ],
    ),
    "a file that was cut off": (
        "{url: https://a, jwtSvids: , serviceAccounts: }",
        ["spec.issuers[0].jwtSvids FieldInvalid", "spec.issuers[0].serviceAccounts FieldInvalid"],
    ),
}


@pytest.mark.parametrize(("issuer", "want"), WRONG.values(), ids=WRONG.keys())
def test_every_mistake_is_named_at_once_and_the_document_is_not_used(issuer: str, want: list[str]) -> None:
    loaded = load(issuer)
    found = [(str(each.problem).partition(": ")[0], each.problem.reason) for each in loaded.findings]
    assert sorted(f"{path[path.index('spec') :]} {reason}" for path, reason in found) == sorted(want)
    assert loaded.resources.configuration is None
