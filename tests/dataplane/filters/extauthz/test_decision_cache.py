import base64
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.dataplane.driven_calls import CALL, STARTED, Watched, Wire, call, drive
from tests.support.dataplane.ext_authz_messages import SERVICE, allowed, denied, header

from authplane.dataplane.filters.calls import (
    Answered,
    Ask,
    Call,
    Code,
    Effect,
    Endpoint,
    Flight,
    Flow,
    Mutation,
    PeerCertificate,
    Proceed,
    Running,
    Stop,
    Unanswered,
    Until,
    Verdict,
)
from authplane.dataplane.filters.extauthz.authorize_call import ExtAuthz
from authplane.dataplane.filters.extauthz.check_messages.wire import CACHE_NAMESPACE
from authplane.dataplane.filters.extauthz.decision_cache import Caching, DecisionCache, lifetime_of
from authplane.dataplane.filters.extauthz.service_decision import Allow, Decision, Deny
from authplane.dataplane.filters.headers import Edits

CACHING: Final = Caching(headers=("x-tenant",), allow_ttl=10.0, deny_ttl=2.0, most=100)
CONFIG: Final = ExtAuthz(service=SERVICE, caching=CACHING)
BEARER: Final = ("authorization", "Bearer opaque")


class Service:
    """Answers checks, and counts them."""

    def __init__(self, message: pb.CheckResponse | None = None) -> None:
        self.message = allowed() if message is None else message
        self.asked: list[pb.CheckRequest] = []
        self.down = False

    def __call__(self, effect: Effect) -> Answered | Unanswered:
        assert isinstance(effect, Ask)
        self.asked.append(pb.CheckRequest.FromString(effect.request))
        return Unanswered(Code.UNAVAILABLE, "down") if self.down else Answered(self.message.SerializeToString())


def ask(running: Running, made: Call, service: Service) -> Verdict:
    return drive(running.run(made), service)[0]


def jwt(seconds: float) -> str:
    payload = json.dumps({"exp": int(STARTED.timestamp() + seconds)}).encode()
    return f"e30.{base64.urlsafe_b64encode(payload).decode().rstrip('=')}.c2ln"


@pytest.mark.requirement("EA-38")
def test_decisions_are_not_remembered_unless_the_program_asks_for_it() -> None:
    service = Service()
    running = ExtAuthz(service=SERVICE).build(Watched().state, None)
    ask(running, CALL, service)
    ask(running, CALL, service)
    assert len(service.asked) == 2


def test_an_allow_is_cached_for_its_time_and_edits_each_call() -> None:
    service, watched = Service(allowed(headers=[header("x-user", "ann")])), Watched()
    running = CONFIG.build(watched.state, None)
    for noise in ("1", "2"):
        verdict = ask(running, call(BEARER, ("x-noise", noise), ("x-user", "spoofed")), service)
        assert verdict == Proceed(metadata=(BEARER, ("x-noise", noise), ("x-user", "ann")))
    assert len(service.asked) == 1
    watched.clock.now += 9.9
    ask(running, call(BEARER), service)
    assert len(service.asked) == 1
    watched.clock.now += 0.1
    ask(running, call(BEARER), service)
    assert len(service.asked) == 2
    events = [metric.rpartition("cache_")[2] for metric, _ in watched.counted if "cache" in metric]
    assert events == ["misses", "hits", "hits", "misses"]
    assert [metric for metric, _ in watched.counted if "cache" not in metric] == [
        "grpc.server_ext_authz.allowed_rpcs"
    ] * 4


def test_a_denial_has_a_time_of_its_own() -> None:
    service, watched = Service(denied(401)), Watched()
    running = CONFIG.build(watched.state, None)
    assert isinstance(ask(running, CALL, service), Stop)
    watched.clock.now += 1.9
    assert isinstance(ask(running, CALL, service), Stop)
    assert len(service.asked) == 1
    watched.clock.now += 0.2
    ask(running, CALL, service)
    assert len(service.asked) == 2


def test_denials_need_not_be_remembered() -> None:
    service = Service(denied(401))
    running = replace(CONFIG, caching=replace(CACHING, deny_ttl=0.0)).build(Watched().state, None)
    ask(running, CALL, service)
    ask(running, CALL, service)
    assert len(service.asked) == 2


@pytest.mark.parametrize(
    "message",
    [
        pb.CheckResponse(error_response=pb.DeniedHttpResponse()),
        allowed(headers=[header("x y")]),
        denied(401, header("x y")),
    ],
)
def test_what_is_no_decision_is_never_remembered(message: pb.CheckResponse) -> None:
    service = Service(message)
    running = CONFIG.build(Watched().state, None)
    assert isinstance(ask(running, CALL, service), Stop)
    service.message = allowed()
    assert isinstance(ask(running, CALL, service), Proceed)
    assert len(service.asked) == 2


def test_cached_decisions_apply_while_the_service_is_down_and_checks_resume() -> None:
    service, watched = Service(), Watched()
    running = CONFIG.build(watched.state, None)
    ask(running, CALL, service)
    service.down = True
    assert isinstance(ask(running, CALL, service), Proceed)
    watched.clock.now += 11
    assert isinstance(ask(running, CALL, service), Stop)
    service.down = False
    assert isinstance(ask(running, CALL, service), Proceed)


def certified(name: str) -> Wire:
    return Wire(certificate=PeerCertificate(uris=(name,)))


DIFFERENT: Final = {
    "the method": replace(CALL, path="/shop.Cart/Empty"),
    "the token": call(("authorization", "Bearer other")),
    "a second token": call(BEARER, BEARER),
    "no token": call(),
    "a chosen header": call(BEARER, ("x-tenant", "a")),
    "the certificate": call(BEARER, connection=certified("spiffe://td/b")),
    "the client's address": call(BEARER, connection=Wire(remote=Endpoint(address="10.1.2.4", port=4711))),
    "our address": call(BEARER, connection=Wire(local=Endpoint(address="10.9.9.9", port=50052))),
}
SAME: Final = {
    "another header": call(BEARER, ("x-noise", "a")),
    "the client's port": call(BEARER, connection=Wire(remote=Endpoint(address="10.1.2.3", port=1))),
    "the time": call(BEARER, started=STARTED + timedelta(seconds=1)),
    "the deadline": call(BEARER, remaining=5.0),
    "the order of headers": call(("x-noise", "a"), BEARER),
}


@pytest.mark.parametrize("made", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_calls_that_differ_in_what_counts_do_not_share_a_decision(made: Call) -> None:
    service = Service()
    running = CONFIG.build(Watched().state, None)
    ask(running, call(BEARER), service)
    ask(running, made, service)
    assert len(service.asked) == 2


@pytest.mark.parametrize("made", SAME.values(), ids=SAME.keys())
def test_calls_that_differ_otherwise_share_it(made: Call) -> None:
    service = Service()
    running = CONFIG.build(Watched().state, None)
    ask(running, call(BEARER), service)
    ask(running, made, service)
    assert len(service.asked) == 1


def test_the_service_is_shown_nothing_that_does_not_count() -> None:
    service = Service()
    ask(CONFIG.build(Watched().state, None), call(BEARER, ("x-tenant", "a"), ("x-noise", "b")), service)
    http = service.asked[0].attributes.request.http
    assert [each.key for each in http.header_map.headers] == ["authorization", "x-tenant"]
    assert service.asked[0].attributes.source.address.socket_address.port_value == 4711


def test_clients_at_different_addresses_share_decisions_only_if_the_service_does_not_see_them() -> None:
    service = Service()
    running = replace(CONFIG, caching=replace(CACHING, by_address=False)).build(Watched().state, None)
    for address in ("10.1.2.3", "10.1.2.4"):
        ask(running, call(BEARER, connection=Wire(remote=Endpoint(address=address, port=1))), service)
    (asked,) = service.asked
    assert not asked.attributes.source.HasField("address")


@pytest.mark.parametrize(("max_age", "checks"), [(None, 1), (100, 1), (5.5, 1), (4.5, 2), (0, 2), ("rubbish", 2)])
def test_the_service_can_shorten_the_time_and_not_lengthen_it(max_age: Any, checks: int) -> None:
    message = allowed()
    if max_age is not None:
        message.dynamic_metadata.update({CACHE_NAMESPACE: {"max_age": max_age}})
    service, watched = Service(message), Watched()
    running = CONFIG.build(watched.state, None)
    ask(running, CALL, service)
    watched.clock.now += 5
    ask(running, CALL, service)
    assert len(service.asked) == checks
    watched.clock.now += 10
    ask(running, CALL, service)
    assert len(service.asked) == checks + 1


@pytest.mark.parametrize(("lives", "checks"), [(100.0, 1), (6.0, 1), (4.0, 2), (-1.0, 2)])
def test_a_decision_does_not_outlive_the_token(lives: float, checks: int) -> None:
    service, watched = Service(), Watched()
    running = CONFIG.build(watched.state, None)
    made = call(("authorization", f"Bearer {jwt(lives)}"))
    ask(running, made, service)
    watched.clock.now += 5
    ask(running, made, service)
    assert len(service.asked) == checks


def test_the_shortest_token_among_the_headers_counts() -> None:
    metadata = (("authorization", f"Bearer {jwt(60)}"), ("x-tenant", jwt(30)), ("x-noise", jwt(1)), ("x-bin", b"a"))
    assert lifetime_of(metadata, CACHING.headers, STARTED) == pytest.approx(29.75)
    assert lifetime_of((BEARER, ("x-tenant", "a.b.c")), CACHING.headers, STARTED) is None


def test_a_changed_configuration_forgets_and_an_equal_one_does_not() -> None:
    service, watched = Service(), Watched()
    ask(CONFIG.build(watched.state, None), CALL, service)
    watched.kept = watched.kept.next_generation()
    ask(ExtAuthz(service=SERVICE, caching=CACHING).build(watched.state, None), CALL, service)
    assert len(service.asked) == 1
    watched.kept = watched.kept.next_generation()
    ask(replace(CONFIG, error_code=Code.ABORTED).build(watched.state, None), CALL, service)
    assert len(service.asked) == 2
    watched.kept = watched.kept.next_generation()
    ask(CONFIG.build(watched.state, None), CALL, service)
    assert len(service.asked) == 3


def test_a_cache_of_one_remembers_the_last() -> None:
    service = Service()
    running = replace(CONFIG, caching=Caching(most=1)).build(Watched().state, None)
    other = replace(CALL, path="/shop.Cart/Empty")
    for made in (CALL, CALL, other, other, CALL):
        ask(running, made, service)
    assert len(service.asked) == 3


def test_what_cannot_be_a_cache_is_refused() -> None:
    with pytest.raises(ValueError, match="Set most to 1 or more"):
        Caching(most=0)
    with pytest.raises(ValueError, match="a lifetime is negative"):
        Caching(deny_ttl=-1)


# --- One check at a time


def finish(flow: Flow, outcome: Answered | Unanswered | None) -> Verdict:
    with pytest.raises(StopIteration) as finished:
        flow.send(outcome)
    verdict: Verdict = finished.value.value
    return verdict


def waiting(flow: Flow) -> list[bool]:
    effect = next(flow)
    assert isinstance(effect, Until)
    woken: list[bool] = []
    effect.flight.when_ended(lambda: woken.append(True))
    return woken


def test_of_equal_calls_at_one_time_one_asks_and_the_others_wait_for_it() -> None:
    watched = Watched()
    running = CONFIG.build(watched.state, None)
    leader, first, second, other = (
        running.run(made) for made in (CALL, CALL, CALL, replace(CALL, path="/shop.Cart/Empty"))
    )
    assert isinstance(next(leader), Ask)
    woken = [waiting(first), waiting(second)]
    assert isinstance(next(other), Ask)
    assert woken == [[], []]
    assert finish(leader, Answered(b"")) == Proceed(metadata=CALL.metadata)
    assert woken == [[True], [True]]
    assert finish(first, None) == finish(second, None) == Proceed(metadata=CALL.metadata)
    events = [metric.rpartition("cache_")[2] for metric, _ in watched.counted if "cache" in metric]
    assert events == ["misses", "misses", "shared", "shared"]


@pytest.mark.parametrize("end", ["fails", "may not be remembered", "is cancelled"])
def test_those_who_wait_ask_themselves_if_the_other_check_comes_to_nothing(end: str) -> None:
    running = CONFIG.build(Watched().state, None)
    leader, follower = running.run(CALL), running.run(CALL)
    next(leader)
    woken = waiting(follower)
    if end == "is cancelled":
        leader.close()
    elif end == "fails":
        assert isinstance(finish(leader, Unanswered(Code.UNAVAILABLE, "")), Stop)
    else:
        message = allowed()
        message.dynamic_metadata.update({CACHE_NAMESPACE: {"max_age": 0}})
        finish(leader, Answered(message.SerializeToString()))
    assert woken == [True]
    assert isinstance(follower.send(None), Ask)
    assert finish(follower, Answered(b"")) == Proceed(metadata=CALL.metadata)


def test_a_caller_that_gives_up_does_not_end_the_check_of_another() -> None:
    running = CONFIG.build(Watched().state, None)
    first, waited, second, third = (running.run(CALL) for _ in range(4))
    assert isinstance(next(first), Ask)
    waiting(waited)
    finish(first, Unanswered(Code.UNAVAILABLE, ""))
    assert isinstance(waited.send(None), Ask)
    assert isinstance(next(second), Ask)
    finish(waited, Unanswered(Code.UNAVAILABLE, ""))
    # The second check is still under way, and the third call waits for it.
    woken = waiting(third)
    assert woken == []
    finish(second, Answered(b""))
    assert woken == [True]


def test_a_caller_that_joins_a_finished_check_is_woken_at_once() -> None:
    flight, woken = Flight(), []
    flight.end()
    flight.when_ended(lambda: woken.append(True))
    assert woken == [True]


def test_no_check_stays_under_way_when_its_call_is_gone() -> None:
    cache = DecisionCache(CACHING)
    flight, leads = cache.board(b"k")
    assert leads
    assert cache.board(b"k") == (flight, False)
    cache.land(b"k", flight)
    assert not cache._flights
    assert cache.board(b"k")[1]


def test_a_large_decision_is_not_remembered() -> None:
    cache = DecisionCache(CACHING)
    edits = Edits(mutations=tuple(Mutation(f"x-{index}", "a" * 10_000) for index in range(2)))
    cache.add(b"k", Allow(edits=edits), 0.0, None)
    cache.add(b"l", Deny(code=Code.ABORTED, message="", trailers=(("x", "a" * 20_000),)), 0.0, None)
    assert len(cache) == 0


def test_threads_share_a_cache_without_harm() -> None:
    cache = DecisionCache(Caching(most=1))
    ends: list[int] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(seed: int) -> int:
        for index in range(1500):
            key = bytes([(seed + index) % 3])
            flight, leads = cache.board(key)
            if leads:
                cache.add(key, Allow(), float(index), None)
                cache.land(key, flight)
            else:
                flight.when_ended(lambda: ends.append(seed))
            cache.find(key, float(index))
        return seed

    try:
        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(work, range(8))) == list(range(8))
    finally:
        sys.setswitchinterval(before)
    assert len(cache) <= 1
    assert not cache._flights


KEYS: Final = st.sampled_from([b"a", b"b", b"c", b"d", b"e"])
DENY: Final = Deny(code=Code.ABORTED, message="")


class AgainstModel(RuleBasedStateMachine):
    """Every decision that is found was added under that key, and its time is not over."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = DecisionCache(Caching(allow_ttl=10.0, deny_ttl=3.0, most=3))
        self.now = 0.0
        self.added: dict[bytes, tuple[Decision, float]] = {}

    @rule(key=KEYS, allow=st.booleans(), age=st.none() | st.integers(0, 12), lives=st.none() | st.integers(-2, 12))
    def add(self, key: bytes, allow: bool, age: int | None, lives: int | None) -> None:
        decision: Decision = Allow(max_age=age) if allow else replace(DENY, max_age=age)
        self.cache.add(key, decision, self.now, lives)
        limits = [10.0 if allow else 3.0, *(float(each) for each in (age, lives) if each is not None)]
        self.added[key] = (decision, self.now + min(limits))

    @rule(seconds=st.integers(0, 6))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @rule(key=KEYS)
    def find(self, key: bytes) -> None:
        found = self.cache.find(key, self.now)
        if found is not None:
            decision, until = self.added[key]
            assert found is decision
            assert self.now < until

    @rule(key=KEYS)
    def find_what_was_just_added(self, key: bytes) -> None:
        self.add(key, allow=True, age=None, lives=None)
        assert self.cache.find(key, self.now) is self.added[key][0]

    @invariant()
    def holds_no_more_than_it_may(self) -> None:
        assert len(self.cache) <= 3


AgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAgainstModel = pytest.mark.slow(AgainstModel.TestCase)


class Racing(float):
    """A time; whoever compares it with another finds that a thread has dropped the decision meanwhile."""

    cache: DecisionCache

    def __lt__(self, other: float) -> bool:
        self.cache._decisions.pop(b"k", None)
        return float.__lt__(self, other)


@pytest.mark.parametrize(("now", "want"), [(0.0, Allow()), (9.9, Allow()), (10.0, None), (11.0, None)])
def test_a_decision_that_another_thread_drops_applies_only_if_not_expired(now: float, want: Allow | None) -> None:
    cache = DecisionCache(CACHING)
    cache.add(b"k", Allow(), 0.0, None)
    racing = Racing(now)
    racing.cache = cache
    assert cache.find(b"k", racing) == want
    assert len(cache) == 0


LARGE = [
    (Deny(code=Code.ABORTED, message="", trailers=(("x", "a" * 16_383),)), 1),
    (Deny(code=Code.ABORTED, message="", trailers=(("x", "a" * 16_384),)), 0),
    (Allow(edits=Edits(mutations=(Mutation("x", "a" * 16_383),))), 1),
    (Allow(edits=Edits(mutations=(Mutation("x", "a" * 16_384),))), 0),
    (Allow(response_mutations=(Mutation("x", "a" * 16_384),)), 0),
    (Allow(response_metadata=(("x", "a" * 16_384),)), 0),
    (Allow(edits=Edits(removals=("a" * 16_384,))), 1),
    (Allow(edits=Edits(removals=("a" * 16_385,))), 0),
]


@pytest.mark.parametrize(("decision", "kept"), LARGE)
def test_a_decision_with_more_than_16_kib_of_headers_is_not_kept(decision: Decision, kept: int) -> None:
    cache = DecisionCache(CACHING)
    cache.add(b"k", decision, 0.0, None)
    assert len(cache) == kept


def test_defaults_apply_unless_the_program_sets_others() -> None:
    assert Caching() == Caching(headers=("authorization",), allow_ttl=10, deny_ttl=1, most=10_000, by_address=True)
    Caching(allow_ttl=0, deny_ttl=0, most=1)
    for wrong in ({"allow_ttl": -0.1}, {"deny_ttl": -0.1}, {"most": 0}):
        with pytest.raises(ValueError, match="Set most to 1 or more"):
            Caching(**wrong)


@pytest.mark.parametrize("lives", [0.0, -1.0])
def test_a_decision_that_may_not_be_kept_takes_the_place_of_no_other(lives: float) -> None:
    cache = DecisionCache(replace(CACHING, most=1))
    cache.add(b"k", Allow(), 0.0, None)
    cache.add(b"other", Allow(), 0.0, lives)
    assert cache.find(b"k", 0.0) == Allow()
    cache.add(b"k", Allow(), 0.0, lives)
    assert len(cache) == 0
