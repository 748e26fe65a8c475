"""How often passwords can be guessed."""

import pytest

from authplane.policy.check.throttle import Rate, Throttle, source_of

SLOW = Rate(burst=3, per_second=0.5)
FREE = Rate(burst=1e9, per_second=1e9)


def test_after_a_burst_attempts_have_to_wait() -> None:
    throttle = Throttle(per_user=SLOW, per_source=FREE)
    waits = [throttle.take("alice", "", now) for now in (0, 0, 0, 0, 1, 2, 2)]
    assert waits == [0, 0, 0, 2, 1, 0, 2]


def test_other_users_and_sources_are_free() -> None:
    throttle = Throttle(per_user=SLOW, per_source=SLOW)
    assert [throttle.take("alice", "10.0.0.1", 0) for _ in range(4)] == [0, 0, 0, 2]
    assert throttle.take("bob", "10.0.0.2", 0) == 0
    assert throttle.take("bob", "10.0.0.1", 0) == 2
    assert throttle.take("alice", "10.0.0.2", 0) == 2


def test_an_attempt_that_was_no_failure_is_put_back() -> None:
    throttle = Throttle(per_user=SLOW, per_source=SLOW)
    for _ in range(20):
        assert throttle.take("alice", "10.0.0.1", 0) == 0
        throttle.put_back("alice", "10.0.0.1", 0)


def test_an_attempt_that_took_long_fills_nothing_twice() -> None:
    throttle = Throttle(per_user=FREE, per_source=SLOW)
    throttle.take("slow", "10.0.0.1", 0)
    assert [throttle.take("alice", "10.0.0.1", 10) for _ in range(4)] == [0, 0, 0, 2]
    throttle.put_back("slow", "10.0.0.1", 0)
    assert [throttle.take("alice", "10.0.0.1", 10) for _ in range(2)] == [0, 2]


def test_a_clock_set_back_fills_nothing() -> None:
    throttle = Throttle(per_user=SLOW, per_source=FREE)
    for _ in range(3):
        throttle.take("alice", "", 100)
    assert throttle.take("alice", "", 50) == 2


def test_memory_is_bounded() -> None:
    throttle = Throttle(most=100)
    for number in range(1000):
        throttle.take(f"user{number}", f"10.0.{number // 250}.{number % 250}", 0)
    assert len(throttle) == 200


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("/run/proxy.sock", ""),
        ("", ""),
    ],
)
def test_source_of(address: str, source: str) -> None:
    assert source_of(address) == source
