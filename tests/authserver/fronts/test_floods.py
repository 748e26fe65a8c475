"""Clients that cost a server all they can: others are served, and memory stays bounded."""

import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from tests.support.authservers.check_requests import check
from tests.support.authservers.fronts import Front, Wanted, both, pyvoy
from tests.support.clients.raw_h2 import RawClient, call_headers, frame, raw_client
from tests.support.eventually import eventually, listening
from tests.support.ports import free_port

from authplane.authserver.plan.server_plan import FrontLimits
from authplane.runtime.child_processes import Child, Line, run_process
from authplane.runtime.servers.listen import Address, TcpAddress

BODY: Final = check("/allow").SerializeToString()
HALF: Final = frame(BODY)[:9]
STREAMS: Final = 1000


async def _allowed(address: Address) -> bool:
    async with raw_client(address) as client:
        return (await client.outcome(await client.call(call_headers(), frame(BODY)))).grpc == 0


def _ignore_limits(client: RawClient) -> None:
    """Open more streams than the server wants."""
    client.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 10 * STREAMS
    client.h2.remote_settings.acknowledge()


@pytest.mark.slow
@both
async def test_calls_at_a_time_are_limited_and_others_are_served(front: Front) -> None:
    # The first call must not be given up before the last is there.
    async with front(Wanted(limits=FrontLimits(patience=120))) as address, raw_client(address) as client:
        assert client.h2.remote_settings.max_concurrent_streams == STREAMS
        _ignore_limits(client)
        calls = [await client.call(call_headers(), HALF, end=False) for _ in range(STREAMS + 1)]
        last = await client.outcome(calls[-1])
        assert last.reset == ErrorCodes.REFUSED_STREAM or client.closed
        assert await _allowed(address)


@pytest.mark.requirement("E24")
@both
async def test_connections_at_a_time_are_limited_and_there_is_room_again_when_they_leave(front: Front) -> None:
    async with front(Wanted(limits=FrontLimits(connections=20))) as address:
        async with AsyncExitStack() as idle:
            clients = [await idle.enter_async_context(raw_client(address)) for _ in range(40)]
            assert [client.closed for client in clients] == [False] * 20 + [True] * 20
            first = clients[0]
            assert (await first.outcome(await first.call(call_headers(), frame(BODY)))).grpc == 0

        async def room() -> bool:
            return await _allowed(address)

        await eventually(room)


@pytest.mark.real
async def test_a_body_that_does_not_end_is_given_up() -> None:
    async with pyvoy(Wanted(limits=FrontLimits(patience=2))) as address, raw_client(address) as client:
        slow = await client.call(call_headers(), HALF, end=False)
        assert await _allowed(address)
        ended = await client.outcome(slow)
        assert (ended.http, ended.grpc) == (200, 2)


@asynccontextmanager
async def _server(engine: str) -> AsyncGenerator[tuple[Address, Child]]:
    address = TcpAddress(host="127.0.0.1", port=free_port())
    argv = [sys.executable, "-m", "authplane", "authserver", "testserver", "--engine", engine]
    argv += ["--address", str(address), "--metrics-address", "", "--decision-log", ""]

    async def ignore(_: Line) -> None: ...

    async with run_process(argv, sink=ignore) as child:
        await listening(address)
        yield address, child


def _memory(parent: int) -> int:
    """Return the resident memory of a process and its children, in bytes."""
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        except OSError:
            continue
        if parent in {int(folder.name), int(status["PPid"])} and "VmRSS" in status:
            total += int(status["VmRSS"].split()[0]) * 1024
    return total


async def _burden(address: Address) -> None:
    """Do everything that costs memory, and leave without a word."""
    bomb = [(b"x-a", b"a" * 3000)] * 350
    async with raw_client(address) as client:
        _ignore_limits(client)
        for _ in range(50):
            reset = await client.call(call_headers(), HALF, end=False)
            if client.closed:
                break
            client.h2.reset_stream(reset)
        await client.flush()
    async with raw_client(address) as client:
        for _ in range(1000):
            client.h2.ping(bytes(8))
        await client.flush()
    async with AsyncExitStack() as idle:
        for _ in range(200):
            await idle.enter_async_context(raw_client(address))
    for headers, body, end in (
        (call_headers(), frame(bytes(5_000_000)), True),
        (call_headers(), frame(bytes(5_000_000))[:1_000_000], False),
        (call_headers(), b"\0\xff\xff\xff\xff" + bytes(1_000_000), False),
        ([*call_headers(), *bomb], frame(BODY), True),
        (call_headers(), frame(BODY)[:-1], True),
    ):
        async with raw_client(address) as client:
            call = await client.call(headers, body, end=end)
            if end:
                await client.outcome(call)


@pytest.mark.real
@pytest.mark.requirement("E24")
@pytest.mark.parametrize("engine", ["grpcio", "pyvoy"])
async def test_memory_is_bounded_whatever_clients_send(engine: str) -> None:
    async with _server(engine) as (address, child):
        for _ in range(3):
            await _burden(address)
        before = _memory(child.pid)
        for _ in range(4):
            await _burden(address)

        async def about_as_before() -> bool:
            # One message of each round, kept by mistake, would be more.
            return _memory(child.pid) < before + 15_000_000

        await eventually(about_as_before)
        assert await _allowed(address)
