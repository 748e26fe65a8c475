"""Reading token files: whatever they are, callers get an answer in time."""

import logging
import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from tests.support.grpc.token_reads import Clock, Gate
from tests.support.issuers.jwt_files import Projected, token

from authplane.core.secret import Secret
from authplane.dataplane.runtime.connections.token_source import TokenSource, read_token_file
from authplane.xds.bootstrap.jwt_file_state import Answer, Bearer, Unavailable, Unreadable

LIMIT = 5


def answer_of(source: TokenSource) -> Answer:
    told: SimpleQueue[Answer] = SimpleQueue()
    return source.ask(told.put) or told.get(timeout=LIMIT)


def cannot(why: str) -> Unavailable:
    return Unavailable(f"Cannot read the token file: {why}. Check its path and permissions.")


@pytest.mark.requirement("JW-1")
def test_a_path_must_not_be_empty() -> None:
    with pytest.raises(ValueError, match="path of the token file is empty"):
        TokenSource("")


@pytest.mark.requirement("JW-1", "W01")
def test_nothing_is_read_before_a_call_or_while_idle(tmp_path: Path) -> None:
    gate, clock = Gate(), Clock()
    gate.opened.set()
    source = TokenSource(str(tmp_path / "token"), read=gate.read, clock=clock)
    clock.move(1000)
    assert gate.count == 0
    assert answer_of(source) == cannot("No such file or directory")
    threads = threading.active_count()
    clock.move(1000)
    assert (gate.count, threading.active_count()) == (1, threads), "no timer waits to read again"


@pytest.mark.requirement("W08")
def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "token"
    os.mkfifo(path)
    assert read_token_file(str(path)) == Unreadable("not a regular file")


@pytest.mark.requirement("W01", "W08")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/", "not a regular file"),
        ("/dev/zero", "not a regular file"),
        ("/proc/self/mem", "Input/output error"),
        ("/proc/self/mem/token", "Not a directory"),
        ("/nowhere/token", "No such file or directory"),
        ("x" * 5000, "File name too long"),
    ],
)
def test_what_cannot_be_read_is_unavailable(path: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    assert answer_of(TokenSource(path)) == cannot(why)
    assert caplog.record_tuples == [
        (
            "authplane.tokens",
            logging.WARNING,
            f"no token from {path}: Cannot read the token file: {why}. Check its path and permissions.",
        )
    ]


@pytest.mark.requirement("W08")
@pytest.mark.parametrize("size", [1024 * 1024 + 1, 1 << 30])
def test_a_file_over_a_mebibyte_is_unavailable(tmp_path: Path, size: int) -> None:
    path = tmp_path / "token"
    with path.open("wb") as file:
        file.truncate(size)
    assert answer_of(TokenSource(str(path))) == cannot("larger than 1048576 bytes")


def test_a_path_that_no_file_can_have_is_unavailable() -> None:
    answer = answer_of(TokenSource("/a\0b"))
    assert isinstance(answer, Unavailable)


@pytest.mark.requirement("W08")
def test_a_read_that_hangs_ends_in_time_and_no_second_one_is_started_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "token"
    text = token(time.time() + 3600)
    path.write_text(text)
    gate, clock = Gate(), Clock()
    source = TokenSource(str(path), read=gate.read, clock=clock, patience=0.05)
    assert answer_of(source) == cannot("reading took longer than 0.05 s")
    clock.move(10)
    assert answer_of(source) == cannot("the previous read has not ended")
    clock.move(10)
    assert answer_of(source) == cannot("the previous read has not ended")
    assert gate.count == 1
    gate.opened.set()
    _joined("token file")
    clock.move(10)
    assert answer_of(source) == Bearer(Secret(text))
    assert gate.count == 2


@pytest.mark.requirement("JW-3", "JW-4", "JW-5")
@pytest.mark.parametrize("exists", [True, False])
def test_many_threads_share_one_read_and_its_result(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "token"
    text = token(time.time() + 3600)
    if exists:
        path.write_text(text)
    gate = Gate()
    source = TokenSource(str(path), read=gate.read)
    told: SimpleQueue[Answer] = SimpleQueue()
    threads = [threading.Thread(target=source.ask, args=(told.put,)) for _ in range(50)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LIMIT)
    assert told.empty()
    gate.opened.set()
    want: Answer = Bearer(Secret(text)) if exists else cannot("No such file or directory")
    assert [told.get(timeout=LIMIT) for _ in threads] == [want] * 50
    assert gate.count == 1


def test_a_waiter_that_fails_does_not_keep_the_others_waiting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Answer) -> None:
        raise RuntimeError("the loop is closed")

    gate = Gate()
    source = TokenSource(str(tmp_path / "token"), read=gate.read)
    told: SimpleQueue[Answer] = SimpleQueue()
    source.ask(fail)
    source.ask(told.put)
    gate.opened.set()
    assert told.get(timeout=LIMIT) == cannot("No such file or directory")
    assert [each.partition(" from ")[0].partition(":")[0] for each in caplog.messages] == [
        "no token",
        "token callback of a call failed",
    ]


def test_a_read_that_raises_is_an_answer_like_any_other() -> None:
    def broken(_: str) -> bytes:
        raise MemoryError("Bearer s3cret")

    answer = answer_of(TokenSource("/token", read=broken))
    assert isinstance(answer, Unavailable)
    assert answer.message.startswith("Cannot read the token file: MemoryError at test_token_source.py")


@pytest.mark.requirement("W07")
def test_a_swapped_file_is_read_whole_at_the_next_refresh(tmp_path: Path) -> None:
    clock = Clock()
    folder = Projected(tmp_path)
    old = token(clock().wall + 100, "old")
    new = token(clock().wall + 3600, "new" * 10_000)
    folder.write(old)
    source = TokenSource(str(folder.path), clock=clock)
    assert answer_of(source) == Bearer(Secret(old))
    folder.write(new)
    assert answer_of(source) == Bearer(Secret(old)), "nobody looks before the last minute"
    clock.move(20)
    assert source.ask(_nobody) == Bearer(Secret(old)), "the old one serves while the new one is read"
    _joined("token file")
    assert source.ask(_nobody) == Bearer(Secret(new))


@pytest.mark.requirement("JW-8", "W06")
def test_a_refresh_that_fails_backs_off_and_says_so_once_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, gate = Clock(), Gate()
    gate.opened.set()
    path = tmp_path / "token"
    text = token(clock().wall + 60)
    path.write_text(text)
    source = TokenSource(str(path), read=gate.read, clock=clock, draw=lambda: 0.5)
    assert answer_of(source) == Bearer(Secret(text))
    path.unlink()
    for _ in range(20):
        assert source.ask(_nobody) == Bearer(Secret(text))
        _joined("token file")
        clock.move(0.25)
    # Reads at 0, 1 and 2.75 s; 20 calls in 5 s.
    assert (gate.count, len(caplog.messages)) == (4, 3)


@pytest.mark.requirement("W14")
def test_the_token_shows_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    text = token(time.time() + 3600)
    secrets = text.split(".")
    path.write_text(text)
    source = TokenSource(str(path))
    good = answer_of(source)
    path.write_text(f"{text}.{text}")
    bad = answer_of(TokenSource(str(path)))
    shown = repr((good, str(good), bad, str(bad), source, caplog.text))
    assert caplog.text
    assert not [each for each in secrets if each in shown]


def _nobody(answer: Answer) -> None:
    raise AssertionError(f"nobody waits for {answer}")


def _joined(name: str) -> None:
    for each in threading.enumerate():
        if each.name == name:
            each.join(LIMIT)


def test_asking_costs_little_once_there_is_a_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token(time.time() + 3600))
    source = TokenSource(str(path))
    answer_of(source)
    told: Any = None
    begun = time.perf_counter()
    for _ in range(1000):
        source.ask(told)
    assert time.perf_counter() - begun < 2
