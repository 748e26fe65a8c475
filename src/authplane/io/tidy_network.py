"""Connections that are closed in the end, whatever happens while they are made."""

import contextlib
from collections.abc import Iterable

import httpcore2


class TidyNetwork(httpcore2.AsyncNetworkBackend):
    """Connects as another one does, and closes everything when it is told to.

    The library forgets a connection whose TLS handshake is cancelled.
    """

    def __init__(self, network: httpcore2.AsyncNetworkBackend) -> None:
        self._network = network
        self._opened: list[httpcore2.AsyncNetworkStream] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the interface is the library's)
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect, and remember it."""
        stream = await self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        self._opened.append(stream)
        return stream

    async def aclose(self) -> None:
        """Close what is still open."""
        for stream in self._opened:
            with contextlib.suppress(httpcore2.NetworkError, OSError):
                await stream.aclose()
