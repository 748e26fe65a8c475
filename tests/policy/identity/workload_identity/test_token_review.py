from typing import Any, Final

import pytest
from tests.support.issuers.minting import NOW, claims, signer

from authplane.policy.check.throttle import Rate
from authplane.policy.identity.workload_identity.breaker import Breaker
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity, Why
from authplane.policy.identity.workload_identity.reviewing import (
    LONGEST,
    Reviewed,
    ReviewFailed,
    ReviewOutcome,
    ReviewToken,
)
from authplane.policy.identity.workload_identity.service_account import ServiceAccount
from authplane.policy.identity.workload_identity.token_review import (
    ALL,
    LEGACY_ISSUER,
    LIFETIME_OF_DENIALS,
    MOST,
    PER_SOURCE,
    Cluster,
    Judgement,
    ReviewUnavailable,
    TokenReviews,
    judge_review,
)
from authplane.policy.identity.workload_identity.workload_tokens import Projected

CLUSTER: Final = Cluster(issuers=frozenset({"https://kubernetes.default.svc"}))
USER: Final = "system:serviceaccount:default:agent"
GOOD: Final = Reviewed(authenticated=True, user=USER, audiences=("mcp",))
DENIED: Final = Reviewed(authenticated=False)
AGENT: Final = Projected(account=ServiceAccount("default", "agent"))


def token(**more: Any) -> str:
    payload = claims(**{"iss": "https://kubernetes.default.svc", "sub": USER, **more})
    return signer("ES256").token({name: value for name, value in payload.items() if value is not None})


def review(
    reviews: TokenReviews, text: str, outcome: ReviewOutcome = GOOD, now: float = NOW, source: str = ""
) -> Judgement:
    """Ask for a review that must be asked for, and answer it."""
    effect = reviews.ask(text, ["mcp"], now, source)
    assert isinstance(effect, ReviewToken)
    return reviews.answered(effect, outcome, now)


@pytest.mark.requirement("K01")
def test_a_review_that_names_no_audience_of_ours_proves_nothing() -> None:
    assert judge_review(["mcp"], GOOD) == AGENT
    assert judge_review(["a", "mcp"], GOOD) == AGENT
    for audiences in ((), ("https://kubernetes.default.svc",), ("MCP",)):
        ignored = Reviewed(authenticated=True, user=USER, audiences=audiences)
        assert judge_review(["mcp"], ignored) == NoIdentity(Why.REVIEW_AUDIENCE)


def test_a_review_of_something_else_proves_nothing() -> None:
    assert judge_review(["mcp"], DENIED) == NoIdentity(Why.REVIEW)
    unsure = Reviewed(authenticated=False, user=USER, audiences=("mcp",))
    assert judge_review(["mcp"], unsure) == NoIdentity(Why.REVIEW)
    human = Reviewed(authenticated=True, user="alice", audiences=("mcp",))
    assert judge_review(["mcp"], human) == NoIdentity(Why.SUBJECT)


@pytest.mark.requirement("K03")
def test_a_review_is_believed_for_a_minute_or_until_the_token_ends() -> None:
    reviews, text = TokenReviews(CLUSTER), token(exp=NOW + 600)
    assert review(reviews, text) == AGENT
    assert reviews.ask(text, ["mcp"], NOW + LONGEST - 1) == AGENT
    assert isinstance(reviews.ask(text, ["mcp"], NOW + LONGEST), ReviewToken)
    short = token(exp=NOW + 20)
    review(reviews, short)
    assert reviews.ask(short, ["mcp"], NOW + 19) == AGENT
    assert reviews.ask(short, ["mcp"], NOW + 20) == NoIdentity(Why.TOKEN)
    for bad in (token(exp=NOW), token(exp=NOW - 1), token(nbf=NOW + 1), token(exp="9999999999"), token(nbf=True)):
        assert reviews.ask(bad, ["mcp"], NOW) == NoIdentity(Why.TOKEN)
    # The pod of a token is gone: only the cluster knows.
    assert review(reviews, token(jti="gone"), DENIED) == NoIdentity(Why.REVIEW)


def test_a_positive_review_is_kept_as_long_as_the_settings_say_and_never_longer_than_a_minute() -> None:
    for set_to, kept in ((5.0, 5.0), (600.0, LONGEST)):
        reviews, text = TokenReviews(CLUSTER), token(exp=NOW + 600)
        asked = reviews.ask(text, ["mcp"], NOW, lifetime=set_to)
        assert isinstance(asked, ReviewToken)
        reviews.answered(asked, GOOD, NOW)
        assert reviews.ask(text, ["mcp"], NOW + kept - 1) == AGENT
        assert isinstance(reviews.ask(text, ["mcp"], NOW + kept), ReviewToken)


def test_a_negative_review_is_kept_for_ten_seconds_or_until_the_token_ends() -> None:
    reviews, text, short = TokenReviews(CLUSTER), token(exp=NOW + 600), token(exp=NOW + 5)
    for each in (text, short):
        assert review(reviews, each, DENIED) == NoIdentity(Why.REVIEW)
    assert reviews.ask(text, ["mcp"], NOW + 9) == NoIdentity(Why.REVIEW)
    assert isinstance(reviews.ask(text, ["mcp"], NOW + 10), ReviewToken)
    assert reviews.ask(short, ["mcp"], NOW + 5) == NoIdentity(Why.TOKEN)


def test_a_review_is_kept_for_the_token_and_the_audiences_it_was_for() -> None:
    reviews, text = TokenReviews(CLUSTER), token()
    review(reviews, text)
    assert isinstance(reviews.ask(text, ["other"], NOW), ReviewToken)
    assert isinstance(reviews.ask(text, ["mcp", "other"], NOW), ReviewToken)
    assert isinstance(reviews.ask(token(jti="2"), ["mcp"], NOW), ReviewToken)
    assert reviews.ask(text, ["mcp", "mcp"], NOW) == AGENT


def test_a_clock_that_was_set_back_ends_what_was_kept() -> None:
    reviews, text = TokenReviews(CLUSTER), token()
    review(reviews, text)
    assert isinstance(reviews.ask(text, ["mcp"], NOW - 1), ReviewToken)


def test_without_an_audience_no_review_is_requested() -> None:
    assert TokenReviews(CLUSTER).ask(token(), [], NOW) == NoIdentity(Why.AUDIENCE)


def test_a_failed_review_is_no_answer_and_is_not_kept() -> None:
    reviews, text = TokenReviews(CLUSTER), token()
    assert review(reviews, text, ReviewFailed("timeout")) == ReviewUnavailable("timeout")
    assert len(reviews) == 0
    assert review(reviews, text) == AGENT


def test_while_reviews_fail_only_what_is_still_fresh_is_believed() -> None:
    reviews, text = TokenReviews(CLUSTER), token()
    review(reviews, text)
    for n in range(5):
        review(reviews, token(jti=str(n)), ReviewFailed("503"))
    assert reviews.ask(token(jti="x"), ["mcp"], NOW) == ReviewUnavailable("token reviews keep failing")
    assert reviews.ask(text, ["mcp"], NOW + 4) == AGENT
    after = reviews.ask(text, ["mcp"], NOW + LONGEST)
    assert isinstance(after, ReviewToken)
    assert reviews.answered(after, ReviewFailed("503"), NOW + LONGEST) == ReviewUnavailable("503")
    assert reviews.ask(text, ["mcp"], NOW + LONGEST + 1) == ReviewUnavailable("token reviews keep failing")


@pytest.mark.requirement("K07")
def test_garbage_is_not_reviewed_and_bad_tokens_are_not_reviewed_often() -> None:
    reviews = TokenReviews(CLUSTER, per_source=Rate(burst=3, per_second=1))
    good = token()
    review(reviews, good, source="10.0.0.1")
    for text in ("", "x", "a.b.c", good[:-2] + "=", token(iss="https://evil.example"), token(iss=None), "a" * 20_000):
        assert reviews.ask(text, ["mcp"], NOW, "10.0.0.1") == NoIdentity(Why.TOKEN)
    bad = [token(jti=str(n)) for n in range(4)]
    for text in bad[:3]:
        assert review(reviews, text, DENIED, source="10.0.0.1") == NoIdentity(Why.REVIEW)
    assert reviews.ask(bad[3], ["mcp"], NOW, "10.0.0.1") == ReviewUnavailable("too many token reviews are pending")
    assert isinstance(reviews.ask(bad[3], ["mcp"], NOW, "10.0.0.2"), ReviewToken)
    assert reviews.ask(good, ["mcp"], NOW, "10.0.0.1") == AGENT
    # What was denied is remembered for a while.
    assert reviews.ask(bad[0], ["mcp"], NOW + LIFETIME_OF_DENIALS - 1, "10.0.0.3") == NoIdentity(Why.REVIEW)
    assert isinstance(reviews.ask(bad[0], ["mcp"], NOW + LIFETIME_OF_DENIALS, "10.0.0.3"), ReviewToken)


def test_reviews_that_wait_for_their_answer_count() -> None:
    reviews = TokenReviews(CLUSTER, per_source=Rate(burst=2, per_second=0.1))
    asked = [reviews.ask(token(jti=str(n)), ["mcp"], NOW, "10.0.0.1") for n in range(3)]
    assert [type(each) for each in asked] == [ReviewToken, ReviewToken, ReviewUnavailable]


def test_good_tokens_do_not_count_against_who_shows_them() -> None:
    reviews = TokenReviews(CLUSTER, per_source=Rate(burst=2, per_second=0.001))
    for n in range(20):
        assert review(reviews, token(jti=str(n)), source="10.0.0.1") == AGENT
    for n in range(4):
        assert review(reviews, token(jti=f"f{n}"), ReviewFailed("429"), source="10.0.0.1") == ReviewUnavailable("429")


def test_the_number_of_reviews_is_limited() -> None:
    reviews = TokenReviews(CLUSTER, overall=Rate(burst=2, per_second=1))
    asked = [reviews.ask(token(jti=str(n)), ["mcp"], NOW, f"10.0.0.{n}") for n in range(3)]
    assert isinstance(asked[1], ReviewToken)
    assert asked[2] == ReviewUnavailable("too many token reviews are pending")
    assert isinstance(reviews.ask(token(jti="9"), ["mcp"], NOW + 1), ReviewToken)


@pytest.mark.requirement("K08")
def test_a_token_without_an_end_is_reviewed_only_if_that_is_allowed() -> None:
    legacy = token(iss=LEGACY_ISSUER, exp=None, aud=None)
    lifelong = token(exp=None)
    strict, lax = TokenReviews(CLUSTER), TokenReviews(Cluster(issuers=CLUSTER.issuers, allow_legacy=True))
    assert strict.ask(legacy, ["mcp"], NOW) == NoIdentity(Why.TOKEN)
    assert strict.ask(lifelong, ["mcp"], NOW) == NoIdentity(Why.LEGACY)
    assert review(lax, legacy) == AGENT
    assert lax.ask(legacy, ["mcp"], NOW + LONGEST - 1) == AGENT
    assert isinstance(lax.ask(legacy, ["mcp"], NOW + LONGEST), ReviewToken)


def test_what_is_kept_is_bounded_and_bad_tokens_push_out_no_good_ones() -> None:
    reviews = TokenReviews(CLUSTER, most=3)
    good = token()
    review(reviews, good)
    for n in range(10):
        review(reviews, token(jti=str(n)), DENIED)
    assert len(reviews) == 4
    assert reviews.ask(good, ["mcp"], NOW) == AGENT


def test_the_token_shows_nowhere() -> None:
    text = token()
    effect = TokenReviews(CLUSTER).ask(text, ["mcp"], NOW)
    assert isinstance(effect, ReviewToken)
    assert effect.token.reveal() == text
    assert text not in repr(effect)
    assert text.split(".")[2] not in repr(effect)


def test_a_breaker_tries_again_after_a_pause_that_grows() -> None:
    breaker = Breaker(failures=2, pause=5, longest=12)
    breaker.failed(0)
    assert breaker.admit(0)
    breaker.failed(0)
    assert [breaker.admit(now) for now in (0, 4.9, 5, 5, 9.9)] == [False, False, True, False, False]
    breaker.failed(6)
    assert [breaker.admit(now) for now in (15.9, 16, 16)] == [False, True, False]
    breaker.failed(16)
    assert [breaker.admit(now) for now in (27.9, 28)] == [False, True]
    breaker.succeeded()
    assert breaker.admit(28)
    breaker.failed(28)
    assert breaker.admit(28)


def test_each_limit_of_reviews_is_what_it_is_said_to_be() -> None:
    reviews, text, bad = TokenReviews(CLUSTER), token(exp=NOW + 600), token(jti="bad", exp=NOW + 600)
    review(reviews, text)
    assert reviews.ask(text, ["mcp"], NOW + 59.9) == AGENT
    assert isinstance(reviews.ask(text, ["mcp"], NOW + 60), ReviewToken)
    review(reviews, bad, DENIED)
    assert reviews.ask(bad, ["mcp"], NOW + 9.9) == NoIdentity(Why.REVIEW)
    assert isinstance(reviews.ask(bad, ["mcp"], NOW + 10), ReviewToken)


def test_a_source_has_20_bad_tokens_reviewed_and_one_more_each_second() -> None:
    reviews = TokenReviews(CLUSTER)
    numbers = iter(range(1000))

    def asked(now: float) -> bool:
        return isinstance(reviews.ask(token(jti=str(next(numbers))), ["mcp"], now, "10.0.0.1"), ReviewToken)

    assert [asked(NOW) for _ in range(21)] == [True] * 20 + [False]
    assert [asked(NOW + 0.9), asked(NOW + 1), asked(NOW + 1)] == [False, True, False]


def test_reviews_are_limited_to_200_and_100_more_each_second() -> None:
    reviews = TokenReviews(CLUSTER)
    texts = [token(jti=str(number)) for number in range(302)]

    def asked(text: str, now: float) -> bool:
        return isinstance(reviews.ask(text, ["mcp"], now), ReviewToken)

    assert [asked(text, NOW) for text in texts[:201]] == [True] * 200 + [False]
    assert [asked(text, NOW + 1) for text in texts[201:]] == [True] * 100 + [False]


def test_ten_thousand_reviews_are_kept_of_each_kind() -> None:
    assert MOST == 10_000
    assert (Rate(burst=20, per_second=1), Rate(burst=200, per_second=100)) == (PER_SOURCE, ALL)
    assert LEGACY_ISSUER == "kubernetes/serviceaccount"


TIMES = {
    "begins now": ({"nbf": NOW}, True),
    "begins later": ({"nbf": NOW + 1}, False),
    "begins at no time": ({"nbf": "1"}, False),
    "begins at true": ({"nbf": True}, False),
    "ends later": ({"exp": NOW + 1}, True),
    "ends now": ({"exp": NOW}, False),
    "ends at no time": ({"exp": "9999999999"}, False),
    "ends at true": ({"exp": True}, False),
    "ends at null": ({"exp": [NOW + 1]}, False),
}


@pytest.mark.parametrize(("said", "asked"), TIMES.values(), ids=TIMES.keys())
def test_only_tokens_that_are_valid_now_are_reviewed(said: dict[str, Any], asked: bool) -> None:
    found = TokenReviews(CLUSTER).ask(token(**said), ["mcp"], NOW)
    assert isinstance(found, ReviewToken) is asked
    assert asked or found == NoIdentity(Why.TOKEN)
