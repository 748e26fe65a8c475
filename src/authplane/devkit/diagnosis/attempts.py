"""Attempts to reach servers from this machine: at the same time, and each within a limit.

A name server that does not answer blocks its caller for many seconds, and Python waits for the blocked thread. So
daemon threads resolve names, and connections are made to addresses.
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from authplane.controlplane.serving.runtime.handshake import (
    Accepted,
    Cause,
    ClientTls,
    Greeting,
    Refused,
    Speaks,
    greet,
)
from authplane.core.addresses import parse_ip_address
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

T = TypeVar("T")

LIMIT: Final = 5.0
"""Seconds that one attempt may take."""
TOTAL: Final = 20.0
"""Seconds that all attempts of a probe may take."""
_MOST: Final = 64
"""Attempts at a time."""
_MOST_ADDRESSES: Final = 4


async def try_all(attempts: Sequence[Callable[[], Awaitable[T]]], *, limit: float = TOTAL) -> list[T | None]:
    """Make attempts at the same time; an attempt that does not finish within the limit is None."""
    outcomes: list[T | None] = [None] * len(attempts)
    gate = asyncio.Semaphore(_MOST)

    async def make(index: int) -> None:
        async with gate:
            outcomes[index] = await attempts[index]()

    with suppress(TimeoutError):
        async with asyncio.timeout(limit), asyncio.TaskGroup() as tasks:
            for index in range(len(attempts)):
                tasks.create_task(make(index))
    return outcomes


async def reach(address: Address, tls: ClientTls | None, speaks: Speaks = Speaks.HTTP2) -> Greeting:
    """Try a server once; of a name with several addresses, one that accepts us is enough."""
    if isinstance(address, UnixAddress):
        return await greet(address, tls, limit=LIMIT, speaks=speaks)
    found = (await resolve(address.host or "localhost"))[:_MOST_ADDRESSES]
    if not found:
        return unresolved(address.host)
    last: Greeting = unresolved(address.host)
    for each in found:
        where = TcpAddress(host=each, port=address.port)
        last = await greet(where, tls, limit=LIMIT / len(found), speaks=speaks)
        if isinstance(last, Accepted):
            break
    return last


def unresolved(host: str) -> Refused:
    """Return the outcome of an attempt whose name has no address."""
    return Refused(cause=Cause.UNREACHABLE, why=f'this machine cannot resolve the name "{host}"')


async def resolve(host: str, *, limit: float = LIMIT) -> tuple[str, ...]:
    """Return the addresses of a name; empty if the name is unknown or is not resolved within the limit."""
    if parse_ip_address(host) is not None:
        return (host,)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def settle(found: tuple[str, ...]) -> None:
        if not answer.done():
            answer.set_result(found)

    def look_up() -> None:
        try:
            found = tuple(str(each[4][0]) for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            found = ()
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=look_up, name=f"resolve {host}", daemon=True).start()
    try:
        async with asyncio.timeout(limit):
            return await answer
    except TimeoutError:
        return ()
