"""Waits for servers to listen."""

import asyncio
from typing import Final, assert_never

from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

_PAUSE: Final = 0.02


class NotReachableError(Exception):
    """No server listens. The message says where and what to do."""


async def reachable(address: Address, *, limit: float = 10.0) -> None:
    """Wait until a server listens; raises `NotReachableError` after ``limit`` seconds."""
    try:
        async with asyncio.timeout(limit):
            while not await _connects(address):  # noqa: ASYNC110 (a server sends no event when it listens)
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise NotReachableError(
            f"No server started to listen on {address} within {limit:g} s. Read the messages above, and start again."
        ) from error


async def _connects(address: Address) -> bool:
    try:
        match address:
            case TcpAddress(host=host, port=port):
                _, writer = await asyncio.open_connection(host, port)
            case UnixAddress(path=path):
                _, writer = await asyncio.open_unix_connection(path)
            case _:
                assert_never(address)
    except OSError:
        return False
    writer.close()
    return True
