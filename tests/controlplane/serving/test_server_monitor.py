"""A server that is tried again and again: what changes is told, once."""

import asyncio

from tests.controlplane.serving.test_handshake import CA, NAME, serving, shown
from tests.support.certificates import client

from authplane.controlplane.serving.runtime.handshake import Accepted, Cause, ClientTls, Greeting, Refused
from authplane.controlplane.serving.runtime.server_monitor import Greeter
from authplane.runtime.run_until_stopped import first_of
from authplane.runtime.servers.listen import Address

LIMIT = 30


async def test_only_changes_are_reported_and_only_once() -> None:
    told: asyncio.Queue[tuple[Address, Greeting]] = asyncio.Queue()
    greeter = Greeter(lambda address, greeting: told.put_nowait((address, greeting)), interval=0.01)
    without = ClientTls(ca=CA, server_name=NAME)
    within = ClientTls(ca=CA, server_name=NAME, shown=shown(client("envoy")))

    async def next_one() -> Greeting:
        async with asyncio.timeout(LIMIT):
            return (await told.get())[1]

    async def changes() -> None:
        async with serving() as address:
            greeter.configure((address,), without)
            found = await next_one()
            assert isinstance(found, Refused)
            assert found.cause is Cause.HANDSHAKE
            greeter.configure((address,), within)
            assert await next_one() == Accepted()
            assert greeter.results == {address: Accepted()}
        # It has been tried many times since: nothing was told before it stopped.
        found = await next_one()
        assert isinstance(found, Refused)
        greeter.configure((), None)
        assert greeter.results == {}

    await first_of(changes, greeter.follow)


async def test_a_reader_gets_new_results_at_once() -> None:
    greeter = Greeter(lambda *_: None, interval=3600, retry=3600)
    async with serving(tls=False) as address:
        pass
    greeter.configure((address,), None)
    await greeter.renew(LIMIT)
    assert isinstance(greeter.results[address], Refused)
    async with serving(tls=False, address=address):
        await greeter.renew(LIMIT)
        assert greeter.results == {address: Accepted()}
        await greeter.renew(0)
        assert greeter.results == {address: Accepted()}


async def test_a_server_that_does_not_listen_is_tried_again_soon() -> None:
    told: asyncio.Queue[Greeting] = asyncio.Queue()
    greeter = Greeter(lambda _, greeting: told.put_nowait(greeting), interval=3600, retry=0.01)
    async with serving(tls=False) as address:
        pass

    async def changes() -> None:
        greeter.configure((address,), None)
        async with asyncio.timeout(LIMIT):
            assert isinstance(await told.get(), Refused)
            async with serving(tls=False, address=address):
                assert await told.get() == Accepted()

    await first_of(changes, greeter.follow)
