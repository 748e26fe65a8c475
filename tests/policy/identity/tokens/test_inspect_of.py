"""Tokens that are looked at only if they are of certain issuers."""

import pytest
from tests.support.issuers.keyrings import ring
from tests.support.issuers.minting import ISSUER, NOW, claims, signer

from authplane.policy.check.throttle import Rate
from authplane.policy.identity.tokens.algorithms import DEFAULT_ALGORITHMS
from authplane.policy.identity.tokens.compact_tokens import unverified_issuer
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.token_outcome import Reason, Refused, Verified

OTHER = "https://other.example"


def test_a_token_of_another_issuer_is_not_inspected_and_uses_no_budget() -> None:
    inspector = TokenInspector(ring(), per_source=Rate(burst=1, per_second=0.001))
    foreign, bad = signer().token(claims(iss=OTHER)), signer("RS256", "k1", 1).token()
    for text in (foreign, "", "x", "a.b.c", "x" * 20_000):
        assert inspector.inspect_of({ISSUER}, text, NOW, "a") is None
    assert isinstance(inspector.inspect_of({ISSUER}, signer().token(), NOW, "a"), Verified)
    # Bad ones of the issuer count as they always do.
    assert inspector.inspect_of({ISSUER}, bad, NOW, "a") == Refused(reason=Reason.SIGNATURE, issuer=ISSUER, kid="k1")
    over = Refused(reason=Reason.TOO_MANY_FAILURES, retry_after=1000)
    assert inspector.inspect_of({ISSUER}, bad, NOW, "a") == over


def test_a_remembered_token_is_found_for_any_issuers() -> None:
    inspector, token = TokenInspector(ring()), signer().token()
    assert inspector.inspect_of((), token, NOW) is None
    verified = inspector.inspect(token, NOW)
    assert inspector.inspect_of((), token, NOW) is verified
    assert inspector.inspect_of((), token, NOW + 700) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (signer().token(), ISSUER),
        (signer().token(claims(iss=None)), ""),
        (signer().token(claims(iss=[ISSUER])), ""),
        (signer().token(header={"alg": "none"}), ""),
        (signer().token("[]"), ""),
        ("", ""),
        ("..", ""),
    ],
)
def test_unverified_issuer(text: str, want: str) -> None:
    assert unverified_issuer(text, DEFAULT_ALGORITHMS) == want
