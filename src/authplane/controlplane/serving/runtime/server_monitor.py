"""Tries to connect to a server at intervals, and reports when it stops or starts accepting connections."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from authplane.controlplane.serving.runtime.handshake import Cause, ClientTls, Greeting, Refused, greet_all
from authplane.runtime.servers.listen import Address

INTERVAL: Final = 10.0
"""Seconds between two attempts."""
RETRY: Final = 1.0
"""Seconds until the next attempt while a server does not listen: it may just be starting."""

RENEWED: Final = 1.0
"""Seconds that a reader of the results waits for new ones."""


class Greeter:
    """Keeps the outcome of the last attempt at each address; there are none until they are configured."""

    def __init__(
        self, heard: Callable[[Address, Greeting], None], *, interval: float = INTERVAL, retry: float = RETRY
    ) -> None:
        self._heard = heard
        self._retry = min(retry, interval)
        self._interval = interval
        self._addresses: tuple[Address, ...] = ()
        self._tls: ClientTls | None = None
        self._changed = asyncio.Event()
        self._results: dict[Address, Greeting] = {}

    @property
    def results(self) -> Mapping[Address, Greeting]:
        """The outcomes of the last attempts; an address that was not tried yet is left out."""
        return self._results

    def configure(self, addresses: tuple[Address, ...], tls: ClientTls | None) -> None:
        """Try these addresses from now on, at once if they or the TLS are others than before."""
        if (addresses, tls) == (self._addresses, self._tls):
            return
        self._addresses, self._tls = addresses, tls
        self._results = {where: each for where, each in self._results.items() if where in addresses}
        self._changed.set()

    async def renew(self, limit: float = RENEWED) -> None:
        """Probe now, so that the results are new; what does not answer within ``limit`` seconds keeps its result."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._greet()

    async def _greet(self) -> None:
        addresses, tls = self._addresses, self._tls
        for address, greeting in zip(addresses, await greet_all(addresses, tls), strict=True):
            if (addresses, tls) == (self._addresses, self._tls):
                self._take(address, greeting)

    def _take(self, address: Address, greeting: Greeting) -> None:
        before, self._results[address] = self._results.get(address), greeting
        if before is None or _sort(before) != _sort(greeting):
            self._heard(address, greeting)

    def _pause(self) -> float:
        results = self._results.values()
        away = any(isinstance(each, Refused) and each.cause is Cause.UNREACHABLE for each in results)
        return self._retry if away else self._interval

    async def follow(self) -> NoReturn:
        """Probe for ever, and report changes."""
        while True:
            await self._greet()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()
            self._changed.clear()


def _sort(greeting: Greeting) -> object:
    """Return what distinguishes results: a server that rejects us may end the connection in different ways."""
    return greeting.cause if isinstance(greeting, Refused) else type(greeting)
