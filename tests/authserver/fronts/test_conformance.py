"""What both gRPC fronts do with calls that no proper client sends: every one ends, and the server lives."""

import asyncio
import gzip
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import grpc
import grpc.aio
import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from structlog.testing import capture_logs
from tests.support.authservers.check_requests import check
from tests.support.authservers.fronts import HERE, Front, Wanted, both, pyvoy
from tests.support.clients.raw_h2 import CHECK, Headers, call_headers, frame, raw_client
from tests.support.eventually import eventually

from authplane.authserver.plan.server_plan import FrontLimits
from authplane.controlplane.serving.runtime.ads import Ads
from authplane.runtime.servers.listen import Address

BODY: Final = check("/allow").SerializeToString()
GZIP: Final = (b"grpc-encoding", b"gzip")


class End(NamedTuple):
    """How a call ends: by an HTTP status, a gRPC status, a reset stream, or with its connection."""

    http: int | None = None
    grpc: int | None = None
    reset: int | None = None
    closed: bool = False


def _said(code: int) -> End:
    return End(http=200, grpc=code)


ALLOWED: Final = _said(0)
RESET: Final = End(reset=2)
CLOSED: Final = End(closed=True)

Ends: TypeAlias = End | tuple[End, End]
"""For both engines, or for grpcio and for pyvoy."""


class Case(NamedTuple):
    headers: Headers
    body: bytes | None
    want: Ends


def _with(*more: tuple[bytes, bytes]) -> Headers:
    return call_headers(CHECK, b"application/grpc", *more)


def _replaced(name: bytes, value: bytes | None) -> Headers:
    others = [pair for pair in call_headers() if pair[0] != name]
    return others if value is None else [(name, value), *others]


CASES: Final[Mapping[str, Case]] = {
    "a check": Case(call_headers(), frame(BODY), ALLOWED),
    "a header of bytes": Case(_with((b"x-a", b"\xff\xfe")), frame(BODY), ALLOWED),
    "a trace of bytes": Case(_with((b"traceparent", b"\xff")), frame(BODY), ALLOWED),
    "an unknown method": Case(call_headers(b"/envoy.service.auth.v3.Authorization/No"), frame(BODY), _said(12)),
    "an unknown service": Case(call_headers(b"/x.Y/Check"), frame(BODY), _said(12)),
    "the health service's stream": Case(call_headers(b"/grpc.health.v1.Health/Watch"), frame(b""), _said(12)),
    "no body": Case(call_headers(), None, _said(13)),
    "half a prefix": Case(call_headers(), b"\0\0", _said(13)),
    "a truncated message": Case(call_headers(), frame(BODY)[:-3], _said(13)),
    "a message that says that it is too large": Case(call_headers(), b"\0\xff\xff\xff\xff", _said(8)),
    "a message that is too large": Case(call_headers(), frame(bytes(5_000_000)), _said(8)),
    "a compressed message": Case(_with(GZIP), frame(gzip.compress(BODY), 1), _said(12)),
    "a message that would become large": Case(_with(GZIP), frame(gzip.compress(bytes(50_000_000)), 1), _said(12)),
    "a compression that is not named": Case(call_headers(), frame(BODY, 1), (_said(13), _said(12))),
    "an unknown compression": Case(_with((b"grpc-encoding", b"x")), frame(BODY, 1), (_said(13), _said(12))),
    "a malformed timeout": Case(_with((b"grpc-timeout", b"soon")), frame(BODY), _said(13)),
    # gRPC's core takes any content type; it is no way around anything, since the message is read all the same.
    "JSON": Case(call_headers(CHECK, b"application/json"), frame(BODY), (ALLOWED, End(http=415))),
    "gRPC-Web": Case(call_headers(CHECK, b"application/grpc-web"), frame(BODY), (ALLOWED, End(http=415))),
    "no content type": Case(_replaced(b"content-type", None), frame(BODY), (ALLOWED, End(http=415))),
    "GET": Case(_replaced(b":method", b"GET"), None, (RESET, End(http=405))),
    "no method": Case(_replaced(b":method", None), frame(BODY), (RESET, CLOSED)),
    "no path": Case(_replaced(b":path", None), frame(BODY), (RESET, CLOSED)),
    "a path without a slash": Case(call_headers(b"x"), frame(BODY), (_said(12), CLOSED)),
    "an upper-case header": Case(_with((b"X-A", b"b")), frame(BODY), (_said(13), CLOSED)),
    "a header's name of bytes": Case(_with((b"x-\xff", b"b")), frame(BODY), (_said(13), CLOSED)),
    "a header with NUL": Case(_with((b"x-a", b"a\0b")), frame(BODY), (ALLOWED, CLOSED)),
    # Small on the wire: all but the first are references to it.
    "headers of a megabyte": Case(_with(*[(b"x-a", b"a" * 3000)] * 350), frame(BODY), (_said(8), RESET)),
    "a large header": Case(_with((b"x-a", b"a" * 100_000)), frame(BODY), (_said(8), RESET)),
    "hundreds of headers": Case(
        _with(*((b"x-%d" % number, b"a" * 20) for number in range(600))), frame(BODY), (_said(8), RESET)
    ),
}


async def _end(address: Address, case: Case) -> End:
    async with raw_client(address) as client:
        found = await client.outcome(await client.call(case.headers, case.body))
        return End(found.http, found.grpc, found.reset or None, client.closed)


@pytest.mark.real
@pytest.mark.requirement("E23")
@both
async def test_every_call_ends_as_it_should_and_the_server_lives(front: Front) -> None:
    # A busy machine takes a while to send all of this: how long a call may take is tested elsewhere.
    async with front(Wanted(limits=FrontLimits(patience=120))) as address:
        async with asyncio.TaskGroup() as tasks:
            calls = {name: tasks.create_task(_end(address, case)) for name, case in CASES.items()}
        assert {name: call.result() for name, call in calls.items()} == {
            name: case.want if isinstance(case.want, End) else case.want[front is pyvoy] for name, case in CASES.items()
        }
        assert await _end(address, CASES["a check"]) == ALLOWED


@pytest.mark.slow
@both
async def test_a_path_that_is_not_text_ends_its_call_only(front: Front) -> None:
    with capture_logs():
        # pyvoy leaves such a call alone until it is given up for idle.
        wanted = Wanted(limits=FrontLimits(idle=0.5))
        async with front(wanted) as address, grpc.aio.insecure_channel(str(address)) as channel:
            for path in (b"/\xff\xfe/Check", b"/%ff", CHECK + b"?\xff"):
                end = await _end(address, Case(call_headers(path), frame(BODY), ALLOWED))
                assert end != End()

                async def allowed() -> bool:
                    try:
                        return await _code(channel, BODY) == 0
                    except grpc.aio.AioRpcError:
                        return False

                await eventually(allowed)


async def test_the_control_plane_lives_too() -> None:
    ads = Ads(lambda _: None)
    with capture_logs() as lines:
        async with ads.serve(HERE) as address:
            end = await _end(address, Case(call_headers(b"/\xff"), frame(b""), ALLOWED))
            assert end.grpc or end.closed

            async def answers() -> bool:
                try:
                    health = call_headers(b"/grpc.health.v1.Health/Check")
                    return (await _end(address, Case(health, frame(b""), ALLOWED))).grpc == 0
                except OSError:
                    return False

            await eventually(answers)
    assert "replacing a gRPC server that ended" in [line["event"] for line in lines]


async def _code(channel: grpc.aio.Channel, body: bytes) -> int:
    call: Any = channel.unary_unary(CHECK.decode())
    return pb.CheckResponse.FromString(await call(body, timeout=30)).status.code
