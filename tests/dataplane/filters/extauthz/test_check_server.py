"""The filter against a Check server of grpcio that knows nothing of ours but the messages."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import grpc
import grpc.aio
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.dataplane.driven_calls import CALL, Watched, call
from tests.support.dataplane.ext_authz_messages import SERVICE, allowed, denied, header

from authplane.dataplane.filters.calls import (
    Answered,
    Ask,
    Call,
    Code,
    Effect,
    Flow,
    Outcome,
    Proceed,
    Stop,
    Unanswered,
    Until,
    Verdict,
)
from authplane.dataplane.filters.chain import run_chain
from authplane.dataplane.filters.extauthz.authorize_call import FAILURE_MARK, ExtAuthz, FailOpen
from authplane.dataplane.filters.extauthz.check_messages.shown_call import CheckForm, Shown
from authplane.dataplane.filters.extauthz.decision_cache import Caching
from authplane.dataplane.filters.extauthz.service_config.service import SideChannel

PARENT: Final = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
Answer = Callable[[pb.CheckRequest], pb.CheckResponse | bytes]


@dataclass
class CheckServer:
    """Answers checks as a test says, and remembers them."""

    answer: Answer = field(default=lambda _: allowed())
    target: str = ""
    requests: list[pb.CheckRequest] = field(default_factory=list)
    metadata: list[dict[str, Any]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def check(self, request: pb.CheckRequest, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        self.arrived.set()
        await self.go.wait()
        found = self.answer(request)
        return found if isinstance(found, bytes) else found.SerializeToString()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncGenerator[CheckServer]:
    server, ours = grpc.aio.server(), CheckServer(answer)
    handler = grpc.unary_unary_rpc_method_handler(
        ours.check, request_deserializer=pb.CheckRequest.FromString, response_serializer=bytes
    )
    handlers = grpc.method_handlers_generic_handler("envoy.service.auth.v3.Authorization", {"Check": handler})
    server.add_generic_rpc_handlers((handlers,))
    ours.target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    ours.go.set()
    await server.start()
    try:
        yield ours
    finally:
        await server.stop(None)


async def perform(effect: Effect, channels: dict[object, grpc.aio.Channel]) -> Outcome:
    """Do what a filter asks for, as plainly as possible."""
    match effect:
        case Ask():
            assert isinstance(effect.channel, SideChannel)
            if effect.channel not in channels:
                channels[effect.channel] = grpc.aio.insecure_channel(effect.channel.target)
            method: Any = channels[effect.channel].unary_unary(effect.method)
            try:
                return Answered(await method(effect.request, timeout=effect.timeout, metadata=effect.metadata))
            except grpc.aio.AioRpcError as error:
                return Unanswered(Code(error.code().value[0]), error.details() or "")
        case Until(flight):
            ended = asyncio.Event()
            flight.when_ended(ended.set)
            await ended.wait()
            return None
        case _:
            raise AssertionError(effect)


async def judge(flow: Flow, channels: dict[object, grpc.aio.Channel]) -> Verdict:
    async with asyncio.timeout(5):
        try:
            effect = next(flow)
            while True:
                effect = flow.send(await perform(effect, channels))
        except StopIteration as finished:
            verdict: Verdict = finished.value
            return verdict
        finally:
            flow.close()


@asynccontextmanager
async def dialing() -> AsyncGenerator[dict[object, grpc.aio.Channel]]:
    channels: dict[object, grpc.aio.Channel] = {}
    try:
        yield channels
    finally:
        for channel in channels.values():
            await channel.close()


def config(server: CheckServer, **changes: Any) -> ExtAuthz:
    service = replace(SERVICE, channel=SideChannel(target=server.target, credentials=None), timeout=5.0)
    return replace(ExtAuthz(service=service), **changes)


async def ask(filter_config: ExtAuthz, made: Call) -> Verdict:
    running = filter_config.build(Watched().state, None)
    async with dialing() as channels:
        return await judge(run_chain((running,), made), channels)


def by_user(request: pb.CheckRequest) -> pb.CheckResponse:
    """Decide by ``header_map``, as a server of A92's form would."""
    found = {each.key: each.raw_value.decode() for each in request.attributes.request.http.header_map.headers}
    if found.get("x-user") == "ann":
        return allowed(headers=[header("x-checked", "yes")], remove=["x-user"], response=[header("x-by", "server")])
    return denied(401, header("x-why", "nobody"), message="who?")


def by_envoy_user(request: pb.CheckRequest) -> pb.CheckResponse:
    """Decide by ``headers`` and ``host`` only, as servers do that were made for Envoy."""
    http = request.attributes.request.http
    if http.host == "shop.example:443" and http.headers.get("x-user") == "ann":
        return allowed(headers=[header("X-Checked", "yes")], remove=["X-User"], response=[header("X-By", "server")])
    return denied(401, header("X-Why", "nobody"), message="who?")


@pytest.mark.requirement("EA-20", "EA-33", "EA-32")
@pytest.mark.parametrize(
    ("form", "answer"), [(CheckForm.A92, by_user), (CheckForm.ENVOY, by_user), (CheckForm.ENVOY, by_envoy_user)]
)
async def test_a_server_decides_in_both_forms(form: CheckForm, answer: Answer) -> None:
    async with serving(answer) as server:
        filter_config = config(server, shown=Shown(form=form))
        assert await ask(filter_config, call(("x-user", "ann"), ("a", "1"))) == Proceed(
            metadata=(("a", "1"), ("x-checked", "yes")), response_metadata=(("x-by", "server"),)
        )
        assert await ask(filter_config, call(("x-user", "eve"))) == Stop(
            code=Code.UNAUTHENTICATED,
            message="denied by the authorization service: who?",
            trailers=(("x-why", "nobody"),),
        )
        assert len(server.requests) == 2


async def test_a_server_for_envoy_finds_no_identity_in_the_strict_form() -> None:
    async with serving(by_envoy_user) as server:
        verdict = await ask(config(server), call(("x-user", "ann")))
        assert isinstance(verdict, Stop)


@pytest.mark.requirement("EA-26")
async def test_the_trace_and_the_metadata_arrive() -> None:
    async with serving(lambda _: allowed()) as server:
        service = replace(config(server).service, metadata=(("x-tenant", "a"), ("x-bin", b"\0\1")))
        await ask(config(server, service=service), call(PARENT))
        (found,) = server.metadata
        assert {name: found[name] for name in ("traceparent", "x-tenant", "x-bin")} == {
            "traceparent": PARENT[1],
            "x-tenant": "a",
            "x-bin": b"\0\1",
        }


@pytest.mark.requirement("EA-5")
async def test_a_server_that_hangs_raises_or_talks_rubbish_gives_no_decision() -> None:
    def crash(_: pb.CheckRequest) -> pb.CheckResponse:
        raise ValueError

    async with serving(lambda _: b"\xff\xff") as server:
        opened = config(server, on_failure=FailOpen(mark_request=True))
        passed = Proceed(metadata=(*CALL.metadata, (FAILURE_MARK, "true")))
        stopped = Stop(code=Code.PERMISSION_DENIED, message="the authorization service made no decision")
        for answer in (server.answer, crash):
            server.answer = answer
            assert await ask(config(server), CALL) == stopped
            assert await ask(opened, CALL) == passed
        server.go.clear()
        hurried = replace(opened, service=replace(opened.service, timeout=0.05))
        assert await ask(hurried, CALL) == passed
        late = Stop(code=Code.DEADLINE_EXCEEDED, message="the deadline passed before the authorization decision")
        assert await ask(opened, replace(CALL, remaining=0.05)) == late
        server.go.set()


@pytest.mark.requirement("EA-5")
async def test_a_server_that_is_gone_gives_no_decision() -> None:
    async with serving(lambda _: allowed()) as server:
        gone = config(server)
    assert isinstance(await ask(gone, CALL), Stop)
    assert isinstance(await ask(replace(gone, on_failure=FailOpen()), CALL), Proceed)


async def test_many_equal_calls_at_one_time_are_one_check() -> None:
    async with serving(lambda _: allowed()) as server, dialing() as channels:
        server.go.clear()
        running = config(server, caching=Caching()).build(Watched().state, None)
        async with asyncio.TaskGroup() as tasks:
            judging = [tasks.create_task(judge(running.run(CALL), channels)) for _ in range(50)]
            await asyncio.wait_for(server.arrived.wait(), 5)
            server.go.set()
        assert {task.result() for task in judging} == {Proceed(metadata=CALL.metadata)}
        assert len(server.requests) == 1


async def test_a_call_that_is_cancelled_does_not_take_others_with_it() -> None:
    async with serving(lambda _: allowed()) as server, dialing() as channels:
        server.go.clear()
        running = config(server, caching=Caching()).build(Watched().state, None)
        async with asyncio.TaskGroup() as tasks:
            leader = tasks.create_task(judge(running.run(CALL), channels))
            await asyncio.wait_for(server.arrived.wait(), 5)
            follower = tasks.create_task(judge(running.run(CALL), channels))
            await asyncio.sleep(0)
            leader.cancel()
            server.go.set()
        assert follower.result() == Proceed(metadata=CALL.metadata)
        assert len(server.requests) == 2
