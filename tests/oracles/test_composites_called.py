"""Composite filters at random on real servers and channels: calls end or go on as the model says."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
import pytest
from tests.oracles.composites import PLAIN, SCOPE, WRITTEN, Configs
from tests.oracles.plans import MILLION, Choice, Config, Ended, Inner, Passed, Run, by_name, judged
from tests.oracles.resources import render_action
from tests.support.dataplane.driven_calls import packed
from tests.support.matching.trees import Request

import authplane.grpc
import authplane.grpc.aio
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.composite.filter import Composite
from authplane.dataplane.filters.composite.wire import parse_composite
from authplane.grpc.matching import by_header, composite

TREES: Final = 60
CALLS: Final = 5
PATIENCE: Final = 20.0
NAMES: Final = (*WRITTEN, ":path", "content-type")
KINDS: Final = ("write", "write", "abort", "permit", "inner", "inner")
Sent: TypeAlias = list[tuple[Config, Request]]


def cases(side: Side) -> tuple[Composite, Sent]:
    """Return a filter that has many others, of which calls choose one by a header, and the calls."""
    made = Configs(77, names=NAMES, kinds=KINDS, shares=(0, MILLION))
    choices: dict[str, Choice] = {str(number): made.choice(depth=2) for number in range(TREES)}
    whole = by_header(
        "x-tree", {name: render_action(Run((Inner(each),)), made.chance) for name, each in choices.items()}
    )
    found = parse_composite(packed(composite(whole)), replace(SCOPE, side=side))
    assert isinstance(found, Composite), found
    sent = []
    for number in range(TREES * CALLS):
        names = made.chance.choices(WRITTEN, k=made.chance.randrange(4))
        metadata = (("x-tree", str(number % TREES)), *((name, made.chance.choice(PLAIN)) for name in names))
        request = Request(path=made.chance.choice(("/s/m", "/s/n", "/t/m")), authority="service", metadata=metadata)
        sent.append((Config(side=side, filter=choices[str(number % TREES)]), request))
    return found, sent


class Threads(grpc.GenericRpcHandler):
    """Answers with the headers of a call."""

    def service(self, _: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        return grpc.unary_unary_rpc_method_handler(lambda _, context: seen(context))


class Loop(grpc.GenericRpcHandler):
    """Does the same on an event loop."""

    def service(self, _: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        async def answer(_: bytes, context: Any) -> bytes:
            return seen(context)

        return grpc.unary_unary_rpc_method_handler(answer)


def seen(context: Any) -> bytes:
    return json.dumps([pair for pair in context.invocation_metadata() if pair[0].startswith("x-")]).encode()


def expected(sent: Sent) -> list[Ended | Passed]:
    found = [judged(config, request, 0.5) for config, request in sent]
    sorts = Counter(type(each) for each in found)
    assert min(sorts[Ended], sorts[Passed]) >= len(sent) // 5, sorts
    return found


def passed(body: bytes, initial: Any) -> Passed:
    metadata = tuple((key, value) for key, value in json.loads(body))
    return Passed(by_name(metadata), tuple(value for key, value in initial or () if key == "written"), ())


def ended(error: Any) -> Ended:
    return Ended(error.code().value[0], error.details())


@contextmanager
def threads_server(filters: list[Composite]) -> Iterator[str]:
    with ThreadPoolExecutor(4) as pool:
        server = authplane.grpc.server(pool, [Threads()], filters=filters)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"127.0.0.1:{port}"
        assert server.stop(0).wait(PATIENCE)


@asynccontextmanager
async def loop_server(filters: list[Composite]) -> AsyncIterator[str]:
    server = authplane.grpc.aio.server(None, [Loop()], filters=filters)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


def called(channel: Any, sent: Sent) -> list[Ended | Passed]:
    found: list[Ended | Passed] = []
    for _, request in sent:
        try:
            body, call = channel.unary_unary(request.path).with_call(b"", metadata=request.metadata, timeout=PATIENCE)
            found.append(passed(body, call.initial_metadata()))
        except grpc.RpcError as error:
            found.append(ended(error))
    return found


async def called_on_loop(channel: Any, sent: Sent) -> list[Ended | Passed]:
    found: list[Ended | Passed] = []
    for _, request in sent:
        call = channel.unary_unary(request.path)(b"", metadata=request.metadata, timeout=PATIENCE)
        try:
            body = await call
            found.append(passed(body, await call.initial_metadata()))
        except grpc.RpcError as error:
            found.append(ended(error))
    return found


@pytest.mark.slow
@pytest.mark.requirement("CF-7", "CF-11", "CF-12")
def test_calls_on_a_server_of_threads_end_as_the_model_says() -> None:
    composites, sent = cases(Side.SERVER)
    with threads_server([composites]) as target, grpc.insecure_channel(target) as channel:
        assert called(channel, sent) == expected(sent)


@pytest.mark.slow
@pytest.mark.requirement("CF-7", "CF-11", "CF-12")
async def test_calls_on_a_server_on_a_loop_end_as_the_model_says() -> None:
    composites, sent = cases(Side.SERVER)
    async with loop_server([composites]) as target, grpc.aio.insecure_channel(target) as channel:
        assert await called_on_loop(channel, sent) == expected(sent)


@pytest.mark.slow
@pytest.mark.requirement("CF-7", "CF-11", "CF-12")
async def test_calls_over_a_channel_of_threads_end_as_the_model_says() -> None:
    composites, sent = cases(Side.CLIENT)

    def over(target: str) -> list[Ended | Passed]:
        with authplane.grpc.channel(target, filters=[composites]) as channel:
            return called(channel, sent)

    async with loop_server([]) as target:
        assert await asyncio.to_thread(over, target) == expected(sent)


@pytest.mark.slow
@pytest.mark.requirement("CF-7", "CF-11", "CF-12")
async def test_calls_over_a_channel_on_a_loop_end_as_the_model_says() -> None:
    composites, sent = cases(Side.CLIENT)
    async with loop_server([]) as target, authplane.grpc.aio.channel(target, filters=[composites]) as channel:
        assert await called_on_loop(channel, sent) == expected(sent)
