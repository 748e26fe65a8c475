"""What is remembered of credentials that were verified."""

import gc

import pytest

from authplane.authserver.backends.htpasswd.verified_credentials import CacheCounts, Verified
from authplane.core.secret import Secret
from authplane.policy.check.basic import Credentials

SECRET = Secret(b"of this process")


def mark(user: str, password: bytes, hashed: bytes = b"hash", verified: Verified | None = None) -> bytes:
    made = Verified(SECRET) if verified is None else verified
    return made.mark(Credentials(user=user, password=password), hashed)


def test_verified_credentials_are_valid_for_their_lifetime() -> None:
    verified = Verified(SECRET, lifetime=300)
    verified.add(b"a", 1000)
    assert [verified.holds(b"a", now) for now in (1000, 1299.9, 1300, 1000)] == [True, True, False, False]
    assert not verified.holds(b"b", 1000)


def test_a_clock_set_back_ends_what_it_would_lengthen() -> None:
    verified = Verified(SECRET, lifetime=300)
    verified.add(b"a", 1000)
    assert not verified.holds(b"a", 500)


def test_the_credentials_used_longest_ago_are_forgotten_first() -> None:
    verified = Verified(SECRET, most=3)
    for each in (b"a", b"b", b"c"):
        verified.add(each, 0)
    assert verified.holds(b"a", 1)
    verified.add(b"d", 1)
    assert [verified.holds(each, 1) for each in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert len(verified) == 3


@pytest.mark.requirement("H13")
def test_another_hash_user_password_or_process_has_another_mark() -> None:
    marks = {
        mark("alice", b"wonder"),
        mark("alice", b"wonder", b"other"),
        mark("alice", b"wonde", b"rhash"),
        mark("alicew", b"onder"),
        mark("alic", b"wonder", b"ehash"),
        mark("alice", b"wonder", verified=Verified(Secret(b"of another process"))),
    }
    assert len(marks) == 6


def test_no_password_is_kept() -> None:
    verified = Verified(SECRET)
    verified.add(mark("alice", b"a password like no other", verified=verified), 0)
    assert b"a password like no other" not in repr(gc.get_referents(verified)).encode()


def test_looks_and_what_had_to_go_are_counted() -> None:
    verified = Verified(SECRET, lifetime=300, most=1)
    verified.add(b"a", 0)
    verified.add(b"b", 0)
    looks = ((b"b", 1), (b"a", 1), (b"b", 400), (b"b", 1))
    assert [verified.holds(each, now) for each, now in looks] == [True, False, False, False]
    assert verified.counts == CacheCounts(hits=1, misses=3, evictions=1)
