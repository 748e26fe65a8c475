"""Tokens from a file on real channels: what the server sees, and the status of calls that have none."""

import asyncio
import gc
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import grpc.aio
import pytest
from tests.support.eventually import eventually
from tests.support.grpc.token_calls import (
    AIO_KINDS,
    KINDS,
    OPTIONS,
    Outcome,
    Server,
    aio_channel,
    aio_outcome,
    outcome,
    serving,
)
from tests.support.grpc.token_reads import Clock, Gate
from tests.support.issuers.jwt_files import Projected, token

from authplane.dataplane.runtime.connections.jwt_file import JwtFileCredentials, jwt_token_file_call_credentials
from authplane.dataplane.runtime.connections.token_source import TokenSource

OK, LATE = grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED
UNAVAILABLE, UNAUTHENTICATED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED
GONE = Outcome(UNAVAILABLE, "Cannot read the token file: No such file or directory. Check its path and permissions.")
RUBBISH = Outcome(
    UNAUTHENTICATED,
    "The token file has no usable token: it is not three base64url parts joined by dots. Write a new "
    "token to the file.",
)
EXPIRED = Outcome(
    UNAUTHENTICATED,
    "The token in the token file has expired, or expires within 30 seconds. Write a new token to the file.",
)
FROM_PLUGIN = "Getting metadata from plugin failed with error: "


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.seen.clear()
    return running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "token"


def lasting(seconds: float, name: str = "a") -> str:
    return token(int(time.time() + seconds), name)


def write(file: Path, text: str) -> str:
    file.write_text(text)
    return text


def bearing(text: str) -> Outcome:
    return Outcome(OK, f"Bearer {text}")


def intercepted(server: Server, credentials: JwtFileCredentials, *, plain: bool = False) -> grpc.Channel:
    channel = grpc.insecure_channel(server.open) if plain else grpc.secure_channel(server.secure, server.trust, OPTIONS)
    return grpc.intercept_channel(channel, credentials.interceptor())


def with_plugin(server: Server, credentials: grpc.CallCredentials) -> grpc.Channel:
    return grpc.secure_channel(server.secure, grpc.composite_channel_credentials(server.trust, credentials), OPTIONS)


@pytest.mark.requirement("JW-1")
def test_credentials_need_a_path() -> None:
    with pytest.raises(ValueError, match="path of the token file is empty"):
        jwt_token_file_call_credentials("")


@pytest.mark.requirement("JW-9")
@pytest.mark.parametrize("kind", KINDS)
def test_calls_of_every_kind_carry_the_token(server: Server, file: Path, kind: str) -> None:
    want = bearing(write(file, lasting(3600) + "\n").strip())
    with with_plugin(server, jwt_token_file_call_credentials(str(file))) as channel:
        assert outcome(kind, channel) == want
    with intercepted(server, JwtFileCredentials(TokenSource(str(file)))) as channel:
        assert outcome(kind, channel) == want
        assert outcome(kind, channel, timeout=None) == want


@pytest.mark.requirement("JW-9")
@pytest.mark.parametrize("kind", AIO_KINDS)
async def test_asynchronous_calls_of_every_kind_carry_the_token(server: Server, file: Path, kind: str) -> None:
    want = bearing(write(file, lasting(3600)))
    credentials = grpc.composite_channel_credentials(server.trust, jwt_token_file_call_credentials(str(file)))
    async with grpc.aio.secure_channel(server.secure, credentials, OPTIONS) as channel:
        assert await aio_outcome(kind, channel) == want
    async with aio_channel(server, JwtFileCredentials(TokenSource(str(file))).aio_interceptors()) as channel:
        assert await aio_outcome(kind, channel) == want
        assert await aio_outcome(kind, channel, timeout=None) == want


CONTENTS = {"gone": (None, GONE), "rubbish": ("rubbish", RUBBISH), "expired": (token(1000), EXPIRED)}


@pytest.mark.requirement("JW-5", "W01")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("content", "want"), CONTENTS.values(), ids=CONTENTS.keys())
def test_without_a_token_calls_fail_with_the_right_status(
    server: Server, file: Path, kind: str, content: str | None, want: Outcome
) -> None:
    if content is not None:
        write(file, content)
    with intercepted(server, JwtFileCredentials(TokenSource(str(file)))) as channel:
        assert outcome(kind, channel) == want
        assert outcome(kind, channel) == want, "the same while backing off"
    assert server.seen == []


@pytest.mark.requirement("JW-5", "W01")
@pytest.mark.parametrize("kind", AIO_KINDS)
@pytest.mark.parametrize(("content", "want"), CONTENTS.values(), ids=CONTENTS.keys())
async def test_without_a_token_asynchronous_calls_fail_with_the_right_status(
    server: Server, file: Path, kind: str, content: str | None, want: Outcome
) -> None:
    if content is not None:
        write(file, content)
    async with aio_channel(server, JwtFileCredentials(TokenSource(str(file))).aio_interceptors()) as channel:
        assert await aio_outcome(kind, channel) == want
        assert await aio_outcome(kind, channel) == want, "the same while backing off"
    assert server.seen == []


@pytest.mark.requirement("JW-5")
@pytest.mark.parametrize(("content", "want"), CONTENTS.values(), ids=CONTENTS.keys())
def test_as_plain_credentials_every_failure_is_unavailable(
    server: Server, file: Path, content: str | None, want: Outcome
) -> None:
    if content is not None:
        write(file, content)
    with with_plugin(server, jwt_token_file_call_credentials(str(file))) as channel:
        assert outcome("unary", channel) == Outcome(UNAVAILABLE, FROM_PLUGIN + want.text)
    assert server.seen == []


@pytest.mark.requirement("JW-10", "W10")
@pytest.mark.parametrize("kind", KINDS)
def test_no_token_goes_over_an_insecure_channel(server: Server, file: Path, kind: str) -> None:
    write(file, lasting(3600))
    credentials = JwtFileCredentials(TokenSource(str(file)))
    with intercepted(server, credentials, plain=True) as channel:
        assert outcome(kind, channel).code is UNAUTHENTICATED
    with grpc.insecure_channel(server.open) as channel:
        assert outcome(kind, channel, credentials=credentials.call_credentials).code is UNAUTHENTICATED
    assert server.seen == []


@pytest.mark.requirement("JW-10", "W10")
@pytest.mark.parametrize("kind", AIO_KINDS)
async def test_no_token_goes_over_an_insecure_asynchronous_channel(server: Server, file: Path, kind: str) -> None:
    write(file, lasting(3600))
    interceptors = JwtFileCredentials(TokenSource(str(file))).aio_interceptors()
    async with aio_channel(server, interceptors, plain=True) as channel:
        want = Outcome(UNAUTHENTICATED, "call credentials need an encrypted connection")
        assert await aio_outcome(kind, channel) == want
    assert server.seen == []


class Also(grpc.AuthMetadataPlugin):
    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        callback((("x-also", "1"),), None)


async def test_credentials_of_the_call_itself_are_kept(server: Server, file: Path) -> None:
    also = grpc.metadata_call_credentials(Also())
    want = Outcome(OK, f"1,Bearer {write(file, lasting(3600))}")
    credentials = JwtFileCredentials(TokenSource(str(file)))
    with intercepted(server, credentials) as channel:
        assert await asyncio.to_thread(outcome, "unary", channel, credentials=also) == want
    async with aio_channel(server, credentials.aio_interceptors()) as channel:
        assert await aio_outcome("unary", channel, credentials=also) == want


@pytest.mark.requirement("JW-4")
@pytest.mark.parametrize("way", ["plugin", "interceptor"])
@pytest.mark.parametrize("content", [lasting(3600), None], ids=["a token", "no file"])
async def test_calls_that_wait_for_the_same_read_share_its_result(
    server: Server, file: Path, way: str, content: str | None
) -> None:
    if content is not None:
        write(file, content)
    gate = Gate()
    source = TokenSource(str(file), read=gate.read)
    credentials = JwtFileCredentials(source)

    async def all_wait() -> bool:
        return len(source._waiting) == 20

    channel = (
        intercepted(server, credentials) if way == "interceptor" else with_plugin(server, credentials.call_credentials)
    )
    with channel, ThreadPoolExecutor(20) as pool:
        calls = [pool.submit(outcome, "unary", channel) for _ in range(20)]
        await eventually(all_wait)
        assert server.seen == []
        gate.opened.set()
        failure = GONE if way == "interceptor" else Outcome(UNAVAILABLE, FROM_PLUGIN + GONE.text)
        want = failure if content is None else bearing(content)
        assert [await asyncio.wrap_future(each) for each in calls] == [want] * 20
    assert gate.count == 1


@pytest.mark.requirement("JW-4", "W08")
async def test_asynchronous_calls_wait_without_blocking_the_loop(server: Server, file: Path) -> None:
    text = write(file, lasting(3600))
    gate = Gate()
    source = TokenSource(str(file), read=gate.read)
    async with (
        aio_channel(server, JwtFileCredentials(source).aio_interceptors()) as channel,
        asyncio.TaskGroup() as all_,
    ):
        calls = [all_.create_task(aio_outcome(kind, channel)) for kind in AIO_KINDS * 5]

        async def all_wait() -> bool:
            return len(source._waiting) == len(calls)

        await eventually(all_wait)
        gate.opened.set()
        assert [await each for each in calls] == [bearing(text)] * len(calls)
    assert gate.count == 1


@pytest.mark.requirement("JW-4", "W08")
async def test_the_deadline_of_a_call_applies_while_it_waits_for_a_token(server: Server, file: Path) -> None:
    gate = Gate()
    credentials = JwtFileCredentials(TokenSource(str(file), read=gate.read))
    with intercepted(server, credentials) as channel:
        got = await asyncio.to_thread(outcome, "unary", channel, timeout=0.05)
        assert got == Outcome(LATE, "Deadline Exceeded")
    async with aio_channel(server, credentials.aio_interceptors()) as channel:
        assert await aio_outcome("unary", channel, timeout=0.05) == Outcome(LATE, "Deadline Exceeded")
        waiting = asyncio.ensure_future(aio_outcome("unary", channel))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    gate.opened.set()


@pytest.mark.requirement("JW-3", "JW-4", "W06", "W07")
async def test_in_its_last_minute_a_token_is_used_while_the_next_is_read(server: Server, tmp_path: Path) -> None:
    folder = Projected(tmp_path)
    old, new = lasting(80, "old"), lasting(3600, "new")
    folder.write(old)
    gate = Gate()
    gate.opened.set()
    credentials = JwtFileCredentials(TokenSource(str(folder.path), read=gate.read))
    async with aio_channel(server, credentials.aio_interceptors()) as channel:
        assert await aio_outcome("unary", channel) == bearing(old)
        gate.opened.clear()
        folder.write(new)
        for _ in range(5):
            assert await aio_outcome("unary", channel) == bearing(old)
        gate.opened.set()

        async def renewed() -> bool:
            return await aio_outcome("unary", channel) == bearing(new)

        await eventually(renewed)


@pytest.mark.requirement("JW-7", "JW-8", "W01")
def test_the_file_is_tried_again_after_the_backoff_and_only_for_a_call(server: Server, file: Path) -> None:
    gate, clock = Gate(), Clock()
    gate.opened.set()
    source = TokenSource(str(file), read=gate.read, clock=clock, draw=lambda: 0.5)
    with intercepted(server, JwtFileCredentials(source)) as channel:
        assert [outcome("unary", channel) for _ in range(3)] == [GONE] * 3
        assert gate.count == 1
        text = token(clock().wall + 3600)
        file.write_text(text)
        clock.move(0.99)
        assert outcome("unary", channel) == GONE
        clock.move(0.01)
        assert gate.count == 1
        assert outcome("unary", channel) == bearing(text)
        assert gate.count == 2


@pytest.mark.requirement("W14")
def test_no_error_and_no_log_shows_the_token(server: Server, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = lasting(3600)
    file.write_text(f"{text} {text}")
    credentials = JwtFileCredentials(TokenSource(str(file)))
    shown = [repr(credentials), repr(credentials.call_credentials), repr(credentials.interceptor())]
    for channel in (intercepted(server, credentials), with_plugin(server, credentials.call_credentials)):
        with channel, pytest.raises(grpc.RpcError) as failed:
            KINDS["unary"](channel, timeout=5)
        shown += [repr(failed.value), str(failed.value), *traceback.format_exception(failed.value)]
    file.write_text(text)
    with intercepted(server, JwtFileCredentials(TokenSource(str(file))), plain=True) as channel:
        with pytest.raises(grpc.RpcError) as failed:
            KINDS["unary"](channel, timeout=5)
        shown += [repr(failed.value), str(failed.value), *traceback.format_exception(failed.value)]
    whole = "\n".join([*shown, caplog.text])
    assert not [each for each in text.split(".") if each in whole]
    assert "authplane.tokens" in caplog.text


async def test_an_ignored_failed_call_leaves_nothing_behind(server: Server, file: Path) -> None:
    async with aio_channel(server, JwtFileCredentials(TokenSource(str(file))).aio_interceptors()) as channel:
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream("/test.Echo/StreamStream")()
        assert await call.code() is UNAVAILABLE
        assert await call.details() == GONE.text
        del call
    gc.collect()
