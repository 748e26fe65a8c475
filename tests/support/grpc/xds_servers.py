"""Servers that xDS configures, of both kinds, behind one face."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tests.support.grpc.shop_servers import PATIENCE, Cart, LoopThread, add_port

import authplane.grpc
import authplane.grpc.aio
from authplane.grpc import ServingState


class Served:
    """A server, its port, and what can be asked of it from any thread."""

    def __init__(self, port: int, wait: Callable[[float], bool], states: Callable[[], Any], stop: Any) -> None:
        self.port = port
        self._wait = wait
        self._states = states
        self.stop: Callable[[float | None], None] = stop

    def is_serving(self, limit: float = PATIENCE) -> bool:
        return self._wait(limit)

    @property
    def states(self) -> tuple[ServingState, ...]:
        return tuple(self._states())


@contextmanager
def xds_serving(stack: str) -> Iterator[Callable[..., Served]]:
    """Make servers of one kind; all have ended when the block ends."""
    made: list[Served] = []
    with _threads() if stack == "threads" else _loop() as make:

        def serve(*arguments: Any, **options: Any) -> Served:
            made.append(make(*arguments, **options))
            return made[-1]

        try:
            yield serve
        finally:
            for each in made:
                each.stop(0)


@contextmanager
def _threads() -> Iterator[Callable[..., Served]]:
    with ThreadPoolExecutor(60) as pool:

        def make(cart: Cart, address: str = "127.0.0.1:0", credentials: Any = None, **options: Any) -> Served:
            server = authplane.grpc.server(pool, [cart.threads()], **options)
            port = add_port(server, address, credentials)
            server.start()

            def stop(grace: float | None) -> None:
                assert server.stop(grace).wait(20)

            return Served(port, server.wait_until_serving, lambda: server.states, stop)

        yield make


@contextmanager
def _loop() -> Iterator[Callable[..., Served]]:
    loop = LoopThread()

    async def begin(cart: Cart, address: str, credentials: Any, options: dict[str, Any]) -> Served:
        server = authplane.grpc.aio.server(None, [cart.loop()], **options)
        port = add_port(server, address, credentials)
        await server.start()
        return Served(
            port,
            lambda limit: loop.run(server.wait_until_serving(limit)),
            lambda: server.states,
            lambda grace: loop.run(server.stop(grace)),
        )

    def make(cart: Cart, address: str = "127.0.0.1:0", credentials: Any = None, **options: Any) -> Served:
        return loop.run(begin(cart, address, credentials, options))

    try:
        yield make
        idle = loop.is_idle()
    finally:
        loop.close()
    assert idle
