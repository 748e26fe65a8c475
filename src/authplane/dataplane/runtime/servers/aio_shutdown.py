"""Stops asynchronous servers, and detects those that ended by themselves.

grpcio ends a server whose client sends a path that is not UTF-8: another takes its place, and only ours has not ended.
"""

import asyncio
import contextlib
import logging
from typing import Final

import grpc.aio

from authplane.runtime.child_processes import place_of

_log: Final = logging.getLogger("authplane.grpc")
_LOOK: Final = 0.1
"""Seconds between two checks of a server."""


class AioEnds:
    """The part of a server that callers wait for."""

    _ended: asyncio.Event

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 (as grpcio has it)
        """Wait until the server has stopped; returns whether the time was over before that."""
        try:
            async with asyncio.timeout(timeout):
                await self._ended.wait()
        except TimeoutError:
            return True
        return False


async def crashed(server: grpc.aio.Server) -> bool:
    """Wait for the end of a server; tell whether it ended by itself."""
    try:
        # Only a wait with a limit reports the end; it returns whether the limit was reached.
        while await server.wait_for_termination(_LOOK):
            pass
    except Exception as error:  # noqa: BLE001 (whatever ended it, calls need a server)
        _log.error("replaced a gRPC server that failed: %s", place_of(error))
        return True
    return False


async def stop_quietly(server: grpc.aio.Server, grace: float | None) -> None:
    """Stop a server; one that ended by itself raises that once more."""
    with contextlib.suppress(Exception):
        await server.stop(grace)


async def pause() -> None:
    """Wait before another attempt."""
    await asyncio.sleep(_LOOK)
