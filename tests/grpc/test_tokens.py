"""Tokens from a file through the public functions: the statuses of gRFC A97, on our channels and on those of grpcio."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.eventually import eventually
from tests.support.grpc.control_plane import controlling
from tests.support.grpc.token_calls import AIO_KINDS, KINDS, OPTIONS, Outcome, Server, aio_outcome, outcome, serving
from tests.support.grpc.xds_resources import api_listener, cluster, endpoints, manager
from tests.support.grpc.xds_routes import forwarded, routes
from tests.support.issuers.jwt_files import token

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import jwt_token_file_call_credentials, jwt_token_file_interceptor
from authplane.grpc.aio import jwt_token_file_interceptors

OK, LATE = grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED
UNAVAILABLE, UNAUTHENTICATED = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED
UNUSABLE = "The token file has no usable token: "
WRITE = ". Write a new token to the file."
CONTENTS = {
    "gone": (
        None,
        Outcome(UNAVAILABLE, "Cannot read the token file: No such file or directory. Check its path and permissions."),
    ),
    "junk": (
        "junk",
        Outcome(UNAUTHENTICATED, f"{UNUSABLE}it is not three base64url parts joined by dots{WRITE}"),
    ),
    "no exp": ("e30.e30.", Outcome(UNAUTHENTICATED, f"{UNUSABLE}its exp is missing or not a number{WRITE}")),
    "expired": (
        token(1000),
        Outcome(
            UNAUTHENTICATED,
            "The token in the token file has expired, or expires within 30 seconds. Write a new token to the file.",
        ),
    ),
}


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.seen.clear()
    running.accepts = lambda _: True
    return running


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "token"


def lasting(seconds: float, name: str = "a") -> str:
    return token(int(time.time() + seconds), name)


def write(file: Path, text: str) -> None:
    file.write_text(text)


def with_tokens(server: Server, file: Path) -> grpc.ChannelCredentials:
    also = grpc.metadata_call_credentials(Also())
    tokens = jwt_token_file_call_credentials(str(file))
    return grpc.composite_channel_credentials(server.trust, grpc.composite_call_credentials(also, tokens))


class Also(grpc.AuthMetadataPlugin):
    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        del context
        callback((), None)


Call = Callable[..., Outcome]


@contextmanager
def of_the_channel(server: Server, file: Path) -> Iterator[Call]:
    with authplane.grpc.channel(server.secure, with_tokens(server, file), OPTIONS) as channel:
        yield lambda kind, **more: outcome(kind, channel, **more)


@contextmanager
def of_the_call(server: Server, file: Path) -> Iterator[Call]:
    tokens = jwt_token_file_call_credentials(str(file))
    with authplane.grpc.channel(server.secure, server.trust, OPTIONS) as channel:
        yield lambda kind, **more: outcome(kind, channel, credentials=tokens, **more)


@contextmanager
def of_an_interceptor(server: Server, file: Path) -> Iterator[Call]:
    with grpc.secure_channel(server.secure, server.trust, OPTIONS) as plain:
        channel = grpc.intercept_channel(plain, jwt_token_file_interceptor(str(file)))
        yield lambda kind, **more: outcome(kind, channel, **more)


@contextmanager
def over_xds(server: Server, file: Path) -> Iterator[Call]:
    port = int(server.secure.rpartition(":")[2])
    with controlling() as control:
        control.publish(
            api_listener("echo.example", manager(inline=routes("inline", forwarded("c")))),
            cluster("c"),
            endpoints("c", (port,)),
        )
        target, trust = "xds:///echo.example", with_tokens(server, file)
        with authplane.grpc.channel(target, trust, OPTIONS, xds=control.bootstrap()) as channel:
            yield lambda kind, **more: outcome(kind, channel, **more)


WAYS = {"channel": of_the_channel, "call": of_the_call, "interceptor": of_an_interceptor, "xds": over_xds}


@pytest.mark.requirement("JW-5", "JW-9")
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
@pytest.mark.parametrize(("content", "want"), CONTENTS.values(), ids=CONTENTS.keys())
def test_calls_without_a_usable_token_have_the_status_of_a97(
    server: Server, file: Path, way: Any, content: str | None, want: Outcome
) -> None:
    if content is not None:
        write(file, content)
    with way(server, file) as call:
        for kind in KINDS:
            assert (kind, call(kind)) == (kind, want)
    assert server.seen == []
    text = lasting(3600)
    write(file, text)
    with way(server, file) as call:
        for kind in KINDS:
            assert (kind, call(kind)) == (kind, Outcome(OK, f"Bearer {text}"))
            assert (kind, call(kind, timeout=None)) == (kind, Outcome(OK, f"Bearer {text}"))


@asynccontextmanager
async def of_the_aio_channel(server: Server, file: Path) -> AsyncIterator[Any]:
    async with authplane.grpc.aio.channel(server.secure, with_tokens(server, file), OPTIONS) as channel:
        yield lambda kind, **more: aio_outcome(kind, channel, **more)


@asynccontextmanager
async def of_the_aio_call(server: Server, file: Path) -> AsyncIterator[Any]:
    tokens = jwt_token_file_call_credentials(str(file))
    async with authplane.grpc.aio.channel(server.secure, server.trust, OPTIONS) as channel:
        yield lambda kind, **more: aio_outcome(kind, channel, credentials=tokens, **more)


@asynccontextmanager
async def of_aio_interceptors(server: Server, file: Path) -> AsyncIterator[Any]:
    interceptors = jwt_token_file_interceptors(str(file))
    async with grpc.aio.secure_channel(server.secure, server.trust, OPTIONS, interceptors=interceptors) as channel:
        yield lambda kind, **more: aio_outcome(kind, channel, **more)


AIO_WAYS = {"channel": of_the_aio_channel, "call": of_the_aio_call, "interceptors": of_aio_interceptors}


@pytest.mark.requirement("JW-5", "JW-9")
@pytest.mark.parametrize("way", AIO_WAYS.values(), ids=AIO_WAYS.keys())
@pytest.mark.parametrize(("content", "want"), CONTENTS.values(), ids=CONTENTS.keys())
async def test_asynchronous_calls_without_a_usable_token_have_the_status_of_a97(
    server: Server, file: Path, way: Any, content: str | None, want: Outcome
) -> None:
    if content is not None:
        write(file, content)
    async with way(server, file) as call:
        for kind in AIO_KINDS:
            assert (kind, await call(kind)) == (kind, want)
    assert server.seen == []
    text = lasting(3600)
    write(file, text)
    async with way(server, file) as call:
        for kind in AIO_KINDS:
            assert (kind, await call(kind)) == (kind, Outcome(OK, f"Bearer {text}"))
            assert (kind, await call(kind, timeout=None)) == (kind, Outcome(OK, f"Bearer {text}"))


async def renewed(call: Callable[[], Any], file: Path, text: str) -> None:
    """Call with a token that the server refuses, write the right one, and wait until calls have it."""
    assert (await call()).code is UNAUTHENTICATED
    write(file, text)

    async def accepted() -> bool:
        got: Outcome = await call()
        return got == Outcome(OK, f"Bearer {text}")

    await eventually(accepted)


def cut(text: str) -> str:
    return text[:-20]


def forged(text: str) -> str:
    """Sign with another key: the length is right."""
    return f"{text.rpartition('.')[0]}.{'A' * 86}"


@pytest.mark.slow
@pytest.mark.requirement("W02")
@pytest.mark.parametrize(
    ("way", "kind", "spoil"),
    [
        (of_the_channel, "unary", cut),
        (of_the_channel, "unary", forged),
        (of_the_call, "unary as a future", forged),
        (of_an_interceptor, "server streaming", forged),
    ],
)
async def test_a_token_that_a_server_refuses_is_read_again(
    server: Server, file: Path, way: Any, kind: str, spoil: Callable[[str], str]
) -> None:
    text = lasting(3600)
    server.accepts = lambda sent: sent == f"Bearer {text}"
    write(file, spoil(text))
    with way(server, file) as call:
        await renewed(lambda: asyncio.to_thread(call, kind), file, text)


@pytest.mark.slow
@pytest.mark.requirement("W02")
@pytest.mark.parametrize(
    ("way", "kind", "spoil"),
    [
        (of_the_aio_channel, "unary", cut),
        (of_the_aio_channel, "streaming both ways", forged),
        (of_the_aio_call, "unary", forged),
        (of_aio_interceptors, "server streaming", forged),
    ],
)
async def test_a_token_that_a_server_refuses_is_read_again_on_an_event_loop(
    server: Server, file: Path, way: Any, kind: str, spoil: Callable[[str], str]
) -> None:
    text = lasting(3600)
    server.accepts = lambda sent: sent == f"Bearer {text}"
    write(file, spoil(text))
    async with way(server, file) as call:
        await renewed(lambda: call(kind), file, text)
