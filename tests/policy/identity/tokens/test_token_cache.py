from dataclasses import replace
from typing import Final

import pytest
from tests.support.issuers.keyrings import Ring, ring, trust
from tests.support.issuers.minting import ISSUER, NOW, claims, segment, signer

from authplane.policy.check.throttle import Rate
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.token_cache import TokenCache, TokenCounts, token_key
from authplane.policy.identity.tokens.token_outcome import Reason, Refused, Verified
from authplane.policy.identity.tokens.verify import NotReady

PEER: Final = "10.0.0.1"


def reason(inspector: TokenInspector, token: str, now: float, source: str = "") -> Reason | None:
    outcome = inspector.inspect(token, now, source)
    return outcome.reason if isinstance(outcome, Refused) else None


def test_a_known_token_is_not_verified_again() -> None:
    inspector, token = TokenInspector(ring()), signer().token()
    first = inspector.inspect(token, NOW)
    assert isinstance(first, Verified)
    assert inspector.inspect(token, NOW + 299) is first
    assert inspector.cache.counts == TokenCounts(hits=1, misses=1)


@pytest.mark.requirement("J39")
def test_an_entry_ends_with_the_lifetime_of_the_cache() -> None:
    inspector, token = TokenInspector(ring(), cache=TokenCache(lifetime=60)), signer().token()
    first = inspector.inspect(token, NOW)
    assert inspector.inspect(token, NOW + 59) is first
    assert inspector.inspect(token, NOW + 60) == first
    assert inspector.cache.counts == TokenCounts(hits=1, misses=2)


@pytest.mark.requirement("J39")
def test_an_entry_ends_with_the_token() -> None:
    inspector, token = TokenInspector(ring()), signer().token(claims(exp=int(NOW) + 10))
    assert reason(inspector, token, NOW) is None
    assert reason(inspector, token, NOW + 10) is None
    assert inspector.cache.counts == TokenCounts(misses=2)
    assert reason(inspector, token, NOW + 40) is Reason.EXPIRED


@pytest.mark.requirement("J39")
def test_an_entry_ends_when_the_issuer_has_other_keys() -> None:
    keyring = ring(signer(), signer(kid="k2", number=1))
    inspector, token = TokenInspector(keyring), signer().token()
    assert reason(inspector, token, NOW) is None
    keyring.issuers[ISSUER] = trust(signer(kid="k2", number=1))
    assert inspector.inspect(token, NOW) == Refused(reason=Reason.KEY, issuer=ISSUER, kid="k1")


@pytest.mark.requirement("J39")
@pytest.mark.parametrize("later", [None, NotReady(issuer=ISSUER)], ids=["gone", "too old"])
def test_an_entry_ends_when_the_issuer_is_trusted_no_more(later: NotReady | None) -> None:
    keyring = ring()
    inspector, token = TokenInspector(keyring), signer().token()
    assert reason(inspector, token, NOW) is None
    keyring.issuers = {} if later is None else {ISSUER: later}
    assert reason(inspector, token, NOW) is (Reason.ISSUER if later is None else Reason.ISSUER_NOT_READY)
    assert len(inspector.cache) == 0


@pytest.mark.requirement("J10")
def test_another_spelling_of_a_signature_gains_nothing() -> None:
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    keyring = ring(signer("ES256"))
    inspector, token = TokenInspector(keyring), signer("ES256").token(claims(jti="t1", exp=int(NOW) + 10))
    head, _, _ = token.rpartition(".")
    proof = signer("ES256").sign(head.encode())
    mirrored = order - int.from_bytes(proof[32:], "big")
    twins = [f"{head}.{segment(proof)}", f"{head}.{segment(proof[:32] + mirrored.to_bytes(32, 'big'))}"]
    found = [inspector.inspect(twin, NOW) for twin in twins]
    assert found[0] == found[1]
    assert [each.id for each in found if isinstance(each, Verified)] == ["t1", "t1"]
    assert [reason(inspector, twin, NOW + 41) for twin in twins] == [Reason.EXPIRED] * 2
    keyring.issuers[ISSUER] = trust(signer())
    assert [reason(inspector, twin, NOW) for twin in twins] == [Reason.ALGORITHM] * 2


def test_a_clock_that_was_set_back_lengthens_nothing() -> None:
    inspector, token = TokenInspector(ring()), signer().token(claims(iat=None))
    assert reason(inspector, token, NOW) is None
    assert reason(inspector, token, NOW - 1000) is None
    assert inspector.cache.counts == TokenCounts(misses=2)


def test_the_token_that_was_used_longest_ago_goes_first() -> None:
    inspector = TokenInspector(ring(), cache=TokenCache(most=2))
    one, two, three = (signer().token(claims(jti=name)) for name in "abc")
    for token in (one, two, one, three, one, two):
        assert reason(inspector, token, NOW) is None
    assert inspector.cache.counts == TokenCounts(hits=2, misses=4, evictions=2)
    assert len(inspector.cache) == 2


def test_what_is_refused_is_not_remembered() -> None:
    inspector = TokenInspector(ring())
    assert reason(inspector, signer(number=1).token(), NOW) is Reason.SIGNATURE
    assert len(inspector.cache) == 0


def test_a_cache_keeps_no_token() -> None:
    token = signer().token()
    assert token_key(token) != token_key(f"{token} ")
    assert len(token_key(f"{token}\udc80")) == 32


def test_an_unknown_key_is_wanted_from_its_issuer() -> None:
    keyring = ring()
    inspector = TokenInspector(keyring)
    assert reason(inspector, signer(kid="new", number=1).token(), NOW) is Reason.KEY
    assert keyring.wishes == [(ISSUER, "new")]


@pytest.mark.requirement("J30")
def test_a_key_that_did_not_sign_a_token_of_its_name_is_wanted_anew() -> None:
    keyring = ring()
    inspector = TokenInspector(keyring)
    assert reason(inspector, signer(number=1).token(), NOW) is Reason.SIGNATURE
    nameless = signer(number=1).token(header={"alg": "RS256"})
    assert reason(inspector, nameless, NOW) is Reason.SIGNATURE
    assert keyring.wishes == [(ISSUER, "k1"), (ISSUER, "")]


@pytest.mark.requirement("S13")
def test_a_token_of_an_unknown_issuer_causes_no_fetch() -> None:
    keyring = ring()
    inspector = TokenInspector(keyring)
    token = signer(kid="new").token(claims(iss="https://attacker.example"))
    assert inspector.inspect(token, NOW) == Refused(reason=Reason.ISSUER, named="https://attacker.example")
    assert keyring.wishes == []


@pytest.mark.requirement("S14")
def test_bad_tokens_of_one_source_cause_bounded_work_and_say_nothing_about_others() -> None:
    inspector = TokenInspector(ring(), per_source=Rate(burst=3, per_second=0.25))
    bad, good = signer(number=1).token(), signer().token()
    for _ in range(3):
        assert reason(inspector, bad, NOW, PEER) is Reason.SIGNATURE
    assert inspector.inspect(good, NOW, PEER) == Refused(reason=Reason.TOO_MANY_FAILURES, retry_after=4)
    assert inspector.inspect("x" * 20_000, NOW, PEER) == Refused(reason=Reason.TOO_LARGE), "it causes no work"
    assert reason(inspector, good, NOW, "10.0.0.2") is None
    assert reason(inspector, good, NOW, PEER) is None, "a token that is known needs no work"
    assert reason(inspector, signer().token(claims(jti="t2")), NOW + 4, PEER) is None


@pytest.mark.requirement("S14")
def test_bad_tokens_of_all_sources_together_cause_bounded_work() -> None:
    inspector = TokenInspector(ring(), in_all=Rate(burst=3, per_second=1))
    good = signer().token()
    assert reason(inspector, good, NOW, PEER) is None
    for number in range(3):
        assert reason(inspector, signer(number=1).token(), NOW, f"10.0.1.{number}") is Reason.SIGNATURE
    fresh = signer().token(claims(jti="t2"))
    assert inspector.inspect(fresh, NOW, "10.0.2.1") == Refused(reason=Reason.TOO_MANY_FAILURES, retry_after=1)
    assert reason(inspector, good, NOW, "10.0.2.1") is None, "a token that is known needs no work"
    assert reason(inspector, fresh, NOW + 1, "10.0.2.1") is None


@pytest.mark.requirement("S14")
def test_a_steady_trickle_of_bad_tokens_never_disturbs_fresh_good_ones_of_the_same_source() -> None:
    inspector = TokenInspector(ring())
    bad = signer(number=1).token()
    for second in range(60):
        for _ in range(18):
            assert reason(inspector, bad, NOW + second, PEER) is Reason.SIGNATURE
        assert reason(inspector, signer().token(claims(jti=str(second))), NOW + second, PEER) is None


@pytest.mark.requirement("S14")
def test_valid_tokens_and_issuers_that_are_down_use_no_budget() -> None:
    down = "https://down.example"
    keyring = Ring({ISSUER: trust(), down: NotReady(issuer=down)})
    inspector = TokenInspector(keyring, per_source=Rate(burst=1, per_second=1))
    for number in range(5):
        assert reason(inspector, signer().token(claims(jti=str(number))), NOW, PEER) is None
        assert reason(inspector, signer().token(claims(iss=down)), NOW, PEER) is Reason.ISSUER_NOT_READY


@pytest.mark.requirement("J21")
def test_a_token_that_is_too_large_is_not_even_hashed() -> None:
    inspector = TokenInspector(ring())
    assert reason(inspector, "A" * 16_385, NOW, PEER) is Reason.TOO_LARGE
    assert inspector.cache.counts == TokenCounts()


def test_other_demands_end_what_was_verified_under_the_old_ones() -> None:
    keyring = ring()
    inspector, token = TokenInspector(keyring), signer().token()
    assert reason(inspector, token, NOW) is None
    held = keyring.issuers[ISSUER]
    assert not isinstance(held, NotReady)
    keyring.issuers[ISSUER] = replace(held)
    assert reason(inspector, token, NOW) is None
    assert inspector.cache.counts == TokenCounts(misses=2)
