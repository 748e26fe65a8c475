import json
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.issuers.minting import ISSUER, Signer, key_set, signer

from authplane.policy.identity.tokens.check_claims import Times
from authplane.policy.identity.tokens.discovery import Metadata
from authplane.policy.identity.tokens.issuer import (
    MOST_KIDS,
    FetchKeys,
    FetchMetadata,
    HttpAnswer,
    Issuer,
    IssuerState,
    Reach,
    Schedule,
    Standing,
)
from authplane.policy.identity.tokens.issuer_events import (
    Fetched,
    FetchFailed,
    IssuerEvent,
    KeysChanged,
    KeysLoaded,
    MetadataChanged,
)
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.identity.tokens.verify import Demands, NotReady, Trust

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
KEYS: Final = f"{ISSUER}/keys"
PLACE: Final = f"{ISSUER}/.well-known/openid-configuration"
CONFIGURED: Final = Issuer(url=IssuerUrl(url=ISSUER, literal=ISSUER))
OLD, NEW = signer(kid="old"), signer(kid="new", number=1)


def metadata(jwks_uri: str = KEYS, issuer: str = ISSUER, cache_control: str = "max-age=86400") -> HttpAnswer:
    body = json.dumps({"issuer": issuer, "jwks_uri": jwks_uri}).encode()
    return HttpAnswer(status=200, body=body, cache_control=cache_control)


def published(*signers: Signer, cache_control: str = "max-age=3600") -> HttpAnswer:
    return HttpAnswer(status=200, body=key_set(*(each.jwk() for each in signers)), cache_control=cache_control)


def answer(state: IssuerState, given: HttpAnswer, now: float) -> tuple[IssuerEvent, ...]:
    return state.answered(state.fetch(now), given, now, 1.0)


def fail(state: IssuerState, now: float, spread: float = 1.0) -> tuple[IssuerEvent, ...]:
    return state.failed(state.fetch(now), "no answer", now, spread)


def ready(*signers: Signer, now: float = 0.0, schedule: Schedule | None = None) -> IssuerState:
    state = IssuerState(CONFIGURED, schedule)
    answer(state, metadata(), now)
    answer(state, published(*(signers or (OLD,))), now)
    return state


def kids(state: IssuerState, now: float) -> list[str | None] | None:
    held = state.trust(now)
    return [key.kid for key in held.keys.keys] if isinstance(held, Trust) else None


def test_keys_are_fetched_from_where_the_discovery_document_says() -> None:
    state = IssuerState(CONFIGURED)
    assert (state.due(), state.fetch(5)) == (0, FetchMetadata(url=PLACE))
    assert answer(state, metadata(), 5) == (Fetched(issuer=ISSUER, url=PLACE),)
    assert (state.due(), state.fetch(5)) == (5, FetchKeys(url=KEYS))
    assert answer(state, published(OLD), 5) == (
        Fetched(issuer=ISSUER, url=KEYS),
        KeysLoaded(issuer=ISSUER, keys=("old",)),
    )
    assert (kids(state, 5), state.due()) == (["old"], 5 + HOUR)
    assert state.standing(7) == Standing(issuer=ISSUER, ready=True, age=2, why="")


@pytest.mark.requirement("J28")
def test_an_issuer_that_was_never_reached_is_not_ready_and_is_tried_again() -> None:
    state = IssuerState(CONFIGURED)
    assert state.trust(0) == NotReady(issuer=ISSUER)
    waits, now = [], 0.0
    for _ in range(7):
        assert fail(state, now) == (FetchFailed(issuer=ISSUER, url=PLACE, why="no answer"),)
        waits.append(state.due() - now)
        now = state.due()
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert state.standing(now) == Standing(issuer=ISSUER, ready=False, age=None, why="no answer")
    answer(state, metadata(), now)
    answer(state, published(OLD), now)
    assert kids(state, now) == ["old"]


def test_retries_are_spread_so_that_not_everybody_asks_at_once() -> None:
    state = IssuerState(CONFIGURED)
    fail(state, 0, spread=0.0)
    assert state.due() == 0.5
    with_keys = ready()
    fail(with_keys, HOUR, spread=0.0)
    assert with_keys.due() == HOUR + 30


@pytest.mark.requirement("J29")
def test_keys_stay_in_use_while_the_issuer_is_down_up_to_a_limit() -> None:
    state = ready()
    now = HOUR
    while now < HOUR + DAY - 60:
        assert isinstance(fail(state, now)[0], FetchFailed)
        assert kids(state, now) == ["old"]
        now = state.due()
    assert state.standing(HOUR + DAY - 1) == Standing(issuer=ISSUER, ready=True, age=HOUR + DAY - 1, why="no answer")
    assert state.trust(HOUR + DAY) == NotReady(issuer=ISSUER)


BAD_ANSWERS: Final = {
    "an error": HttpAnswer(status=500, body=b'{"keys":[]}'),
    "a redirect": HttpAnswer(status=302),
    "nothing new": HttpAnswer(status=304),
    "not JSON": HttpAnswer(status=200, body=b"<html>"),
    "not a key set": HttpAnswer(status=200, body=b"{}"),
    "too large": HttpAnswer(status=200, body=b" " * (1024 * 1024 + 1)),
    "gone": HttpAnswer(status=404),
}


@pytest.mark.requirement("J29")
@pytest.mark.parametrize("bad", BAD_ANSWERS.values(), ids=BAD_ANSWERS.keys())
def test_a_bad_answer_never_clears_the_keys(bad: HttpAnswer) -> None:
    state = ready()
    fetch = state.fetch(HOUR)
    assert fetch == FetchKeys(url=KEYS)
    assert isinstance(state.answered(fetch, bad, HOUR, 1.0)[0], FetchFailed)
    assert kids(state, HOUR) == ["old"]
    assert isinstance(state.fetch(state.due()), FetchMetadata), "the keys may have moved"


@pytest.mark.requirement("policy:S10")
def test_a_key_that_the_issuer_removed_is_gone_after_the_next_fetch() -> None:
    state = ready(OLD, NEW)
    assert answer(state, published(NEW), state.due())[1:] == (KeysChanged(issuer=ISSUER, removed=("old",)),)
    assert kids(state, HOUR) == ["new"]


@pytest.mark.requirement("policy:S10")
def test_a_key_that_the_issuer_added_is_there_as_soon_as_a_token_names_it() -> None:
    state = ready()
    assert state.wanted("new", 100)
    assert state.due() == 100
    assert answer(state, published(OLD, NEW), 100)[1:] == (KeysChanged(issuer=ISSUER, added=("new",)),)
    assert kids(state, 100) == ["new", "old"]


def test_an_issuer_that_withdraws_all_keys_is_believed() -> None:
    state = ready()
    answer(state, published(), HOUR)
    assert kids(state, HOUR) == []


@pytest.mark.requirement("policy:S12")
def test_every_change_of_keys_or_metadata_is_reported() -> None:
    state = ready(OLD)
    replaced = Signer("old", "RS256", NEW.key)
    assert answer(state, published(replaced), HOUR)[1:] == (KeysChanged(issuer=ISSUER, replaced=("old",)),)
    moved = f"{ISSUER}/moved"
    assert answer(state, metadata(moved), DAY) == (
        Fetched(issuer=ISSUER, url=PLACE),
        MetadataChanged(issuer=ISSUER, before=Metadata(jwks_uri=KEYS), after=Metadata(jwks_uri=moved)),
    )
    assert state.fetch(DAY) == FetchKeys(url=moved)


@pytest.mark.requirement("policy:S11")
def test_what_does_not_change_stays_the_same_object_and_is_not_told() -> None:
    state = ready()
    before = state.trust(0)
    assert answer(state, published(OLD), HOUR) == (Fetched(issuer=ISSUER, url=KEYS),)
    assert state.trust(HOUR) is before


@pytest.mark.requirement("J37")
@pytest.mark.parametrize(
    ("control", "due"), [("max-age=31536000", DAY), ("no-store", 60), ("max-age=0", 60), ("", 600)]
)
def test_keys_are_fetched_again_when_they_are_no_longer_fresh(control: str, due: float) -> None:
    state = IssuerState(CONFIGURED)
    answer(state, metadata(), 0)
    answer(state, published(OLD, cache_control=control), 0)
    assert state.due() == due


def test_the_discovery_document_is_fetched_again_when_it_is_no_longer_fresh() -> None:
    state = ready()
    assert isinstance(state.fetch(DAY - 1), FetchKeys)
    assert isinstance(state.fetch(DAY), FetchMetadata)


@pytest.mark.requirement("J27")
def test_a_flood_of_unknown_keys_causes_one_fetch_in_thirty_seconds() -> None:
    state = ready()
    fetches = []
    for tick in range(10 * 300):
        now = tick / 10
        for each in range(10):
            state.wanted(f"random-{tick}-{each}", now)
        if state.due() <= now:
            assert isinstance(state.fetch(now), FetchKeys)
            fetches.append(now)
            answer(state, published(OLD), now)
    assert fetches == [30.0 * number for number in range(1, 10)]


@pytest.mark.requirement("J30")
def test_bad_signatures_by_a_known_key_cause_one_fetch_in_thirty_seconds() -> None:
    state = ready()
    fetches = []
    for now in range(300):
        state.wanted("old", now)
        if state.due() <= now:
            assert isinstance(state.fetch(now), FetchKeys)
            fetches.append(now)
            answer(state, published(OLD), now)
    assert fetches == [30 * number for number in range(1, 10)]


@pytest.mark.requirement("J27")
def test_a_flood_while_the_issuer_fails_causes_no_more_fetches() -> None:
    state = ready()
    fetches = []
    for now in range(1, 300):
        state.wanted(f"random-{now}", now)
        if state.due() <= now:
            fetches.append(now)
            fail(state, now, spread=0.0)
    assert fetches == [30 * number for number in range(1, 10)]


@pytest.mark.requirement("J27")
def test_a_key_that_was_looked_for_in_vain_is_not_looked_for_again_for_a_while() -> None:
    state = ready()
    assert state.wanted("ghost", 100)
    answer(state, published(OLD), 100)
    assert not state.wanted("ghost", 129)
    assert state.due() == 100 + HOUR
    assert state.wanted("ghost", 131)
    assert state.due() == 131


def test_a_key_wanted_soon_after_a_fetch_is_looked_for_later_and_not_forgotten() -> None:
    state = ready()
    assert state.wanted("new", 10)
    assert state.due() == 30
    assert not state.wanted("other", 11), "the fetch that is due serves both"


def test_names_of_unknown_keys_take_no_more_room_than_allowed() -> None:
    state = ready()
    for now in range(100, 500, 50):
        for number in range(MOST_KIDS + 500):
            state.wanted(f"{now}-{number}", now)
        answer(state, published(OLD), now)
    assert len(state._missing) == MOST_KIDS
    assert len(state._looked_for) == 0


def test_an_issuer_without_keys_is_not_hurried_by_tokens() -> None:
    state = IssuerState(CONFIGURED)
    fail(state, 0)
    assert not state.wanted("k", 0.1)
    assert state.due() == 1


PATH: Final = Issuer(url=IssuerUrl(url=f"{ISSUER}/a", literal=f"{ISSUER}/a"))


@pytest.mark.requirement("R19")
def test_a_document_that_is_not_there_is_looked_for_in_the_next_place() -> None:
    state = IssuerState(PATH)
    tried = []
    for status in (404, 403):
        tried.append(state.fetch(0).url)
        assert answer(state, HttpAnswer(status=status), 0) == ()
        assert state.due() == 0
    tried.append(state.fetch(0).url)
    answer(state, metadata(issuer=f"{ISSUER}/a"), 0)
    assert tried == [
        f"{ISSUER}/a/.well-known/openid-configuration",
        f"{ISSUER}/.well-known/oauth-authorization-server/a",
        f"{ISSUER}/.well-known/openid-configuration/a",
    ]
    answer(state, published(OLD), 0)
    assert state.fetch(DAY).url == tried[-1], "where it was found it is looked for first"


def test_a_document_that_is_nowhere_is_a_failure() -> None:
    state = IssuerState(PATH)
    outcomes = [answer(state, HttpAnswer(status=404), 0) for _ in range(3)]
    assert outcomes[:2] == [(), ()]
    assert isinstance(outcomes[2][0], FetchFailed)
    assert state.due() > 0


@pytest.mark.parametrize("status", [500, 503, 429, 408, 301])
def test_a_discovery_address_with_an_error_is_retried_and_no_other(status: int) -> None:
    state = IssuerState(PATH)
    first = state.fetch(0)
    assert isinstance(answer(state, HttpAnswer(status=status), 0)[0], FetchFailed)
    assert state.fetch(state.due()) == first


@pytest.mark.requirement("R19", "S3")
@pytest.mark.parametrize(
    "bad", [metadata(issuer="https://evil.example"), metadata(jwks_uri="http://issuer.example/keys")]
)
def test_a_document_that_is_rejected_gives_no_keys_and_no_other_place_is_tried(bad: HttpAnswer) -> None:
    state = IssuerState(PATH)
    first = state.fetch(0)
    assert isinstance(answer(state, bad, 0)[0], FetchFailed)
    assert isinstance(state.trust(0), NotReady)
    assert state.fetch(state.due()) == first


def test_hosts_of_keys_can_be_configured() -> None:
    state = IssuerState(replace(CONFIGURED, reach=Reach(jwks_hosts=("keys.example.net",))))
    answer(state, metadata("https://keys.example.net/k"), 0)
    assert state.fetch(0) == FetchKeys(url="https://keys.example.net/k")


def test_other_demands_keep_the_keys() -> None:
    state = ready()
    before = state.trust(0)
    demands = Demands(times=Times(skew=0))
    assert state.reconfigure(CONFIGURED)
    assert state.trust(0) is before
    assert state.reconfigure(replace(CONFIGURED, demands=demands))
    after = state.trust(0)
    assert isinstance(before, Trust)
    assert after == Trust(issuer=ISSUER, demands=demands, keys=before.keys)


def test_another_way_to_the_keys_does_not_keep_them() -> None:
    assert not ready().reconfigure(replace(CONFIGURED, reach=Reach(allow_private_network=True)))


ACTIONS: Final = st.lists(
    st.tuples(
        st.floats(min_value=0, max_value=40),
        st.sampled_from(["good", "other", "fail", "garbage", "absent", "wanted"]),
        st.floats(min_value=0, max_value=1),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(ACTIONS)
@pytest.mark.requirement("J27", "J29")
def test_whatever_happens_keys_are_never_lost_early_nor_fetched_too_often(
    actions: list[tuple[float, str, float]],
) -> None:
    state, now, fetched = ready(), 0.0, [0.0]
    for wait, action, spread in actions:
        now += wait
        if action == "wanted":
            state.wanted(f"k{len(fetched)}-{wait}", now)
        if state.due() > now:
            continue
        fetch = state.fetch(now)
        if isinstance(fetch, FetchKeys):
            fetched.append(now)
        good = metadata() if isinstance(fetch, FetchMetadata) else published(NEW if action == "other" else OLD)
        match action:
            case "fail":
                state.failed(fetch, "no answer", now, spread)
            case "garbage":
                state.answered(fetch, HttpAnswer(status=200, body=b"{"), now, spread)
            case "absent":
                state.answered(fetch, HttpAnswer(status=404), now, spread)
            case _:
                state.answered(fetch, good, now, spread)
        assert isinstance(state.trust(now), Trust)
    assert all(later - earlier >= 30 for earlier, later in pairwise(fetched))
