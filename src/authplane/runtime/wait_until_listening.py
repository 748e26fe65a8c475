"""Waits for servers to listen."""

import asyncio
from typing import Final, assert_never

from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress

_PAUSE: Final = 0.02


class NotReachableError(Exception):
    """Nobody listens; the message is a sentence for the user."""


async def reachable(address: Address, *, limit: float = 10.0) -> None:
    """Wait until somebody listens there; raises `NotReachableError` when that takes too long."""
    try:
        async with asyncio.timeout(limit):
            while not await _connects(address):  # noqa: ASYNC110 (a server tells nobody when it listens)
                await asyncio.sleep(_PAUSE)
    except TimeoutError as error:
        raise NotReachableError(f"nothing listens on {address} after {limit:g} s") from error


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
