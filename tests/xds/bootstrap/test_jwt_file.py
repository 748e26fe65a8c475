"""Credentials from a token file, step by step as gRFC A97 tells it."""

import pytest
from tests.support.issuers.jwt_files import token

from authplane.core.secret import Secret
from authplane.xds.bootstrap.jwt_file_state import (
    Answer,
    Bearer,
    JwtFile,
    Moment,
    Queued,
    Started,
    Unauthenticated,
    Unavailable,
    Unreadable,
)

START = 1_800_000_000.0
GONE = Unreadable("No such file or directory")
UNAVAILABLE = Unavailable("Cannot read the token file: No such file or directory. Check its path and permissions.")
EXPIRED = Unauthenticated(
    "The token in the token file has expired, or expires within 30 seconds. Write a new token to the file."
)
RUBBISH = Unauthenticated(
    "The token file has no usable token: it is not three base64url parts joined by dots. Write a new token to the file."
)
READ, NO_READ = True, False


def at(seconds: float) -> Moment:
    """Name a time by the seconds since the start; both clocks run alike."""
    return Moment(wall=START + seconds, steady=seconds)


def lasting(seconds: float, name: str = "a") -> str:
    return token(int(START + seconds), name)


def ended(file: JwtFile, content: str | Unreadable, seconds: float) -> Answer:
    return file.read_ended(content.encode() if isinstance(content, str) else content, at(seconds), 0.5)


def holding(text: str) -> JwtFile:
    file = JwtFile()
    assert file.call_started(at(0)) == Started(Queued(), READ)
    assert ended(file, text, 0) == Bearer(Secret(text))
    return file


@pytest.mark.requirement("JW-3", "JW-4", "JW-9")
def test_the_first_calls_wait_for_one_read_and_share_its_token() -> None:
    file = JwtFile()
    assert file.call_started(at(0)) == Started(Queued(), READ)
    assert file.call_started(at(0.1)) == Started(Queued(), NO_READ)
    text = lasting(3600)
    assert ended(file, text, 0.2) == Bearer(Secret(text))
    assert file.call_started(at(0.3)) == Started(Bearer(Secret(text)), NO_READ)


@pytest.mark.requirement("JW-2", "JW-3", "W06")
def test_a_token_is_read_again_in_its_last_minute_which_ends_30_s_early() -> None:
    text = lasting(1000)
    file = holding(text)
    assert file.call_started(at(909.9)) == Started(Bearer(Secret(text)), NO_READ)
    assert file.call_started(at(910)) == Started(Bearer(Secret(text)), READ)
    assert file.call_started(at(969.9)) == Started(Bearer(Secret(text)), NO_READ), "one read is enough"
    assert file.call_started(at(970)) == Started(Queued(), NO_READ), "it has expired, and the read goes on"


@pytest.mark.requirement("JW-4", "W07")
def test_after_a_refresh_calls_carry_the_new_token() -> None:
    old, new = lasting(1000, "old"), lasting(4600, "new")
    file = holding(old)
    file.call_started(at(950))
    assert file.call_started(at(951)) == Started(Bearer(Secret(old)), NO_READ)
    assert ended(file, new, 952) == Bearer(Secret(new))
    assert file.call_started(at(953)) == Started(Bearer(Secret(new)), NO_READ)


@pytest.mark.requirement("JW-2", "JW-5", "W05")
@pytest.mark.parametrize("left", [-10, 0, 29, 30])
def test_a_token_that_is_about_to_expire_is_none(left: float) -> None:
    file = JwtFile()
    file.call_started(at(0))
    assert ended(file, lasting(left), 0) == EXPIRED
    assert file.call_started(at(0.5)) == Started(EXPIRED, NO_READ)


@pytest.mark.requirement("JW-2", "W05")
def test_a_token_with_more_than_30_s_is_used() -> None:
    text = lasting(31)
    file = holding(text)
    assert file.call_started(at(0.9)) == Started(Bearer(Secret(text)), READ)


@pytest.mark.requirement("JW-5", "JW-7", "W01")
@pytest.mark.parametrize(("content", "failure"), [(GONE, UNAVAILABLE), ("rubbish", RUBBISH)])
def test_while_backing_off_calls_fail_at_once_with_the_last_status(content: str | Unreadable, failure: Answer) -> None:
    file = JwtFile()
    file.call_started(at(0))
    assert ended(file, content, 0) == failure
    assert file.call_started(at(0.999)) == Started(failure, NO_READ)
    assert file.call_started(at(1)) == Started(Queued(), READ)


@pytest.mark.requirement("JW-7")
def test_delays_grow_with_each_failure_and_begin_anew_after_a_success() -> None:
    file = JwtFile()
    now = 0.0
    delays = (1.0, 1.6, 2.56, 4.096)
    for delay in delays:
        assert file.call_started(at(now)) == Started(Queued(), READ)
        ended(file, GONE, now)
        assert file.call_started(at(now + delay - 0.001)) == Started(UNAVAILABLE, NO_READ)
        now += delay + 0.001
    file.call_started(at(now))
    ended(file, lasting(now + 31), now)
    now += 5
    assert file.call_started(at(now)) == Started(Queued(), READ)
    ended(file, GONE, now)
    assert file.call_started(at(now + 1)) == Started(Queued(), READ)


@pytest.mark.requirement("JW-7")
def test_the_status_is_that_of_the_last_read() -> None:
    file = JwtFile()
    file.call_started(at(0))
    ended(file, GONE, 0)
    file.call_started(at(2))
    ended(file, "rubbish", 2)
    assert file.call_started(at(3)) == Started(RUBBISH, NO_READ)


@pytest.mark.requirement("JW-8")
@pytest.mark.parametrize("content", [GONE, "rubbish", lasting(10)], ids=["gone", "rubbish", "expired"])
def test_a_failed_refresh_leaves_the_token_in_use_and_waits_before_the_next(content: str | Unreadable) -> None:
    text = lasting(1000)
    file = holding(text)
    assert file.call_started(at(920)) == Started(Bearer(Secret(text)), READ)
    ended(file, content, 920)
    assert file.call_started(at(920.9)) == Started(Bearer(Secret(text)), NO_READ)
    assert file.call_started(at(921)) == Started(Bearer(Secret(text)), READ)


@pytest.mark.requirement("JW-8")
def test_a_token_that_expires_while_backing_off_is_not_used_any_longer() -> None:
    file = holding(lasting(1000))
    file.call_started(at(969.5))
    ended(file, GONE, 969.5)
    assert file.call_started(at(970)) == Started(UNAVAILABLE, NO_READ)
    assert file.call_started(at(970.5)) == Started(Queued(), READ)


def test_a_clock_that_is_set_does_not_lengthen_the_backoff() -> None:
    file = JwtFile()
    file.call_started(Moment(wall=START, steady=0))
    file.read_ended(GONE, Moment(wall=START, steady=0), 0.5)
    assert file.call_started(Moment(wall=START - 86400, steady=1)) == Started(Queued(), READ)


@pytest.mark.requirement("W14")
def test_answers_do_not_show_the_token() -> None:
    text = lasting(1000)
    assert text not in repr(holding(text).call_started(at(1)))


def cut(text: str) -> str:
    return text[:-5]


CUT_OFF = Unauthenticated(
    "The token file has no usable token: the signature seems to be cut off. Write a new token to the file."
)


@pytest.mark.requirement("W02")
def test_a_token_that_seems_cut_off_is_sent_and_read_again_at_calls_after_a_growing_wait() -> None:
    text = lasting(3600)
    file = holding(cut(text))
    assert file.call_started(at(0.99)) == Started(Bearer(Secret(cut(text))), NO_READ)
    assert file.call_started(at(1)) == Started(Bearer(Secret(cut(text))), READ)
    assert file.call_started(at(1)) == Started(Bearer(Secret(cut(text))), NO_READ)
    assert ended(file, cut(text), 1) == Bearer(Secret(cut(text)))
    assert file.call_started(at(2.59)) == Started(Bearer(Secret(cut(text))), NO_READ)
    assert file.call_started(at(2.6)) == Started(Bearer(Secret(cut(text))), READ)
    assert ended(file, text, 2.6) == Bearer(Secret(text))
    assert file.call_started(at(1000)) == Started(Bearer(Secret(text)), NO_READ)


@pytest.mark.requirement("W02", "JW-8")
def test_a_token_that_seems_cut_off_never_replaces_a_whole_one_that_can_be_used() -> None:
    old, new = lasting(80, "old"), lasting(3600, "new")
    file = holding(old)
    assert file.call_started(at(1)) == Started(Bearer(Secret(old)), READ)
    assert ended(file, cut(new), 1) == CUT_OFF
    assert file.call_started(at(1.99)) == Started(Bearer(Secret(old)), NO_READ)
    assert file.call_started(at(2)) == Started(Bearer(Secret(old)), READ)
    assert ended(file, new, 2) == Bearer(Secret(new))


@pytest.mark.requirement("W02")
def test_a_token_that_seems_cut_off_is_sent_when_there_is_no_other() -> None:
    old, new = lasting(80, "old"), lasting(3600, "new")
    file = holding(old)
    assert file.call_started(at(50)) == Started(Queued(), READ)
    assert ended(file, cut(new), 50) == Bearer(Secret(cut(new)))
    newer = cut(lasting(7200, "newer"))
    assert file.call_started(at(51)) == Started(Bearer(Secret(cut(new))), READ)
    assert ended(file, newer, 51) == Bearer(Secret(newer))
    assert file.call_started(at(51.99)) == Started(Bearer(Secret(newer)), NO_READ), "another text, another count"
    assert file.call_started(at(52)) == Started(Bearer(Secret(newer)), READ)


@pytest.mark.requirement("W02")
def test_a_refused_token_is_read_again_at_once_and_then_after_a_growing_wait() -> None:
    text, other = lasting(3600), lasting(3600, "b")
    file = holding(text)
    assert not file.call_refused(Secret(other), at(1)), "that one is not used any more"
    assert file.call_started(at(1)) == Started(Bearer(Secret(text)), NO_READ)
    assert file.call_refused(Secret(text), at(2))
    assert not file.call_refused(Secret(text), at(2)), "one read at a time"
    assert file.call_started(at(2)) == Started(Bearer(Secret(text)), NO_READ)
    assert ended(file, text, 2) == Bearer(Secret(text))
    assert not file.call_refused(Secret(text), at(2.99))
    assert file.call_refused(Secret(text), at(3))
    assert ended(file, text, 3) == Bearer(Secret(text))
    assert file.call_started(at(4.59)) == Started(Bearer(Secret(text)), NO_READ)
    assert file.call_started(at(4.6)) == Started(Bearer(Secret(text)), READ)
    assert ended(file, other, 4.6) == Bearer(Secret(other))
    assert file.call_started(at(100)) == Started(Bearer(Secret(other)), NO_READ)
    assert file.call_refused(Secret(other), at(100)), "nothing is held against the next token"


@pytest.mark.requirement("W02", "JW-8")
def test_a_refused_token_stays_in_use_while_the_file_cannot_be_read() -> None:
    text = lasting(3600)
    file = holding(text)
    assert file.call_refused(Secret(text), at(1))
    assert ended(file, GONE, 1) == UNAVAILABLE
    assert not file.call_refused(Secret(text), at(1.99))
    assert file.call_started(at(1.99)) == Started(Bearer(Secret(text)), NO_READ)
    assert file.call_started(at(2)) == Started(Bearer(Secret(text)), READ)


def test_nothing_is_refused_before_the_first_token() -> None:
    assert not JwtFile().call_refused(Secret(lasting(3600)), at(0))
