"""The ASGI application without a server: frames, methods, content types."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from google.protobuf.wrappers_pb2 import Int32Value, StringValue
from tests.support.authservers.answers import answer
from tests.support.authservers.check_requests import check
from tests.support.authservers.front_backends import Gate
from tests.support.authservers.told_checks import Told

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.fronts.runtime.answer_checks import LATE, Checks
from authplane.authserver.fronts.runtime.asgi_bodies import Message
from authplane.authserver.fronts.runtime.asgi_front import GrpcApplication, Refusal, parse_frame
from authplane.policy.verdicts.effects import Effect, Outcome

V3: Final = "/envoy.service.auth.v3.Authorization/Check"
V2: Final = "/envoy.service.auth.v2.Authorization/Check"
HEALTH: Final = "/grpc.health.v1.Health/Check"
BODY: Final = check("/allow").SerializeToString()
REPLY: Final = answer(TestServer(mode=Mode.PATH), BODY, datetime.now(UTC)).reply
APPLICATION: Final = GrpcApplication(Checks(TestServer(mode=Mode.PATH), observer=Told()), largest_message=1000)


def frame(message: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + len(message).to_bytes(4, "big") + message


class Reply(NamedTuple):
    status: int
    body: bytes = b""
    grpc: int | None = None


async def ask(
    application: GrpcApplication,
    chunks: Sequence[bytes],
    *,
    left: asyncio.Event | None = None,
    again: bool = False,
    **scope: Any,
) -> Reply | None:
    """Ask as a server does, for a client that stays until ``left``; None means that nothing was answered."""
    events = [
        {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
        for index, chunk in enumerate(chunks)
    ]
    if again:
        events.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[Message] = []

    async def receive() -> Message:
        if chunks and not events:
            await (left or asyncio.Event()).wait()
        return events.pop(0) if events else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    path = scope.pop("path", V3)
    kind = scope.pop("kind", b"application/grpc")
    patience = scope.pop("patience", None)
    headers = [(b"content-type", kind), *([(b"grpc-timeout", patience)] if patience else [])]
    whole = {"type": "http", "method": "POST", "http_version": "2", "raw_path": path.encode(), "headers": headers}
    await application(whole | scope, receive, send)
    if not sent:
        return None
    trailers = dict(sent[2]["headers"]) if len(sent) == 3 else {}
    code = int(trailers[b"grpc-status"]) if trailers else None
    return Reply(sent[0]["status"], sent[1]["body"], code)


class Case(NamedTuple):
    chunks: Sequence[bytes]
    want: Reply | None
    scope: dict[str, Any] = {}  # noqa: RUF012 (a case is not changed)


CASES: Final = {
    "a check": Case([frame(BODY)], Reply(200, frame(REPLY), 0)),
    "the older service has the same answer": Case([frame(BODY)], Reply(200, frame(REPLY), 0), {"path": V2}),
    "a check in pieces": Case([frame(BODY)[:3], b"", frame(BODY)[3:9], frame(BODY)[9:]], Reply(200, frame(REPLY), 0)),
    "a content type that names the encoding": Case(
        [frame(BODY)], Reply(200, frame(REPLY), 0), {"kind": b"application/grpc+proto"}
    ),
    "a deadline": Case([frame(BODY)], Reply(200, frame(REPLY), 0), {"patience": b"99999999H"}),
    "a deadline that is none": Case([frame(BODY)], Reply(200, b"", 13), {"patience": b"1 S"}),
    "no body": Case([b""], Reply(200, b"", 13)),
    "half a prefix": Case([b"\0\0"], Reply(200, b"", 13)),
    "a truncated message": Case([frame(BODY)[:-1]], Reply(200, b"", 13)),
    "two messages": Case([frame(BODY) * 2], Reply(200, b"", 13)),
    "a compressed message": Case([frame(BODY, 1)], Reply(200, b"", 12)),
    "an unknown flag": Case([frame(BODY, 2)], Reply(200, b"", 13)),
    "a message that is too large": Case([frame(b"a" * 1001)], Reply(200, b"", 8)),
    "a message that says that it is too large": Case([b"\0\xff\xff\xff\xff"], Reply(200, b"", 8)),
    "a body that does not end is not waited for": Case([frame(b"a")[:6], b"a" * 2000, b"b"], Reply(200, b"", 13)),
    "a client that leaves": Case([], None),
    "an unknown method": Case([frame(BODY)], Reply(200, b"", 12), {"path": "/envoy.service.auth.v3.Authorization/No"}),
    "an encoded path is another path": Case([frame(BODY)], Reply(200, b"", 12), {"path": V3.replace("/C", "%2FC")}),
    "another content type": Case([frame(BODY)], Reply(415), {"kind": b"application/json"}),
    "gRPC-Web": Case([frame(BODY)], Reply(415), {"kind": b"application/grpc-web"}),
    "another method": Case([frame(BODY)], Reply(405), {"method": "GET"}),
    "another page": Case([b""], Reply(404), {"path": "/", "kind": b"text/html"}),
    "HTTP/1.1": Case([frame(BODY)], Reply(505), {"http_version": "1.1"}),
    "health": Case([frame(b"")], Reply(200, frame(Int32Value(value=1).SerializeToString()), 0), {"path": HEALTH}),
    "health of another": Case(
        [frame(StringValue(value="x").SerializeToString())], Reply(200, b"", 5), {"path": HEALTH}
    ),
    "health of nonsense": Case([frame(b"\xff")], Reply(200, b"", 3), {"path": HEALTH}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_call_is_answered(case: Case) -> None:
    assert await ask(APPLICATION, case.chunks, **case.scope) == case.want


async def test_a_server_that_is_not_ready_says_so() -> None:
    application = GrpcApplication(Checks(TestServer(), observer=Told()), serving=lambda: False)
    want = Reply(200, frame(Int32Value(value=2).SerializeToString()), 0)
    assert await ask(application, [frame(b"")], path=HEALTH) == want


async def test_a_check_that_waits_ends_with_the_deadline_of_its_caller() -> None:
    async def never(_: Effect) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    application = GrpcApplication(Checks(Gate(Path("unused")), observer=Told(), perform=never))
    assert await ask(application, [frame(BODY)], patience=b"10m") == Reply(200, frame(LATE), 0)


async def test_a_check_that_waits_is_given_up_when_its_caller_leaves() -> None:
    ended, left = asyncio.Event(), asyncio.Event()

    async def never(_: Effect) -> Outcome:
        left.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    application = GrpcApplication(Checks(Gate(Path("unused")), observer=Told(), perform=never))
    async with asyncio.timeout(5):
        # pyvoy says once more that the body is over before it says anything else.
        assert await ask(application, [frame(BODY)], left=left, again=True) is None
        await ended.wait()


def test_the_largest_message_is_served() -> None:
    assert parse_frame(frame(b"a" * 10), 10) == b"a" * 10
    assert parse_frame(frame(b"a" * 11), 10) == Refusal(8, "the message is larger than 10 bytes")


@pytest.mark.requirement("E24")
async def test_bodies_that_do_not_end_share_one_room_and_small_calls_need_none_of_it() -> None:
    application = GrpcApplication(Checks(TestServer(mode=Mode.PATH), observer=Told()), room=300)
    told, began, go_on = [], asyncio.Event(), asyncio.Event()
    whole = {"type": "http", "method": "POST", "http_version": "2", "raw_path": V3.encode()}
    chunks = [frame(BODY)[:10], frame(BODY)[10:]]

    async def receive() -> Message:
        if len(chunks) == 1:
            began.set()
            await go_on.wait()
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: Message) -> None:
        told.append(message)

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        slow = whole | {"headers": [(b"content-type", b"application/grpc")]}
        tasks.create_task(application(slow, receive, send))
        await began.wait()
        assert await ask(application, [frame(BODY)]) == Reply(200, frame(REPLY), 0)
        assert await ask(application, [frame(b"a" * 900)[:291], b"b"]) == Reply(200, b"", 8)
        assert await ask(application, [frame(b"a" * 900)[:290], b""]) == Reply(200, b"", 13)
        go_on.set()
    assert told[1]["body"] == frame(REPLY)
    assert await ask(application, [frame(b"a" * 900)[:300], b""]) == Reply(200, b"", 13)
