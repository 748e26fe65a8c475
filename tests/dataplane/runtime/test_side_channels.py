"""Channels to services on the side."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any

import grpc
import pytest
from tests.support import certificates
from tests.support.grpc.shop_servers import Authority, authorizing
from tests.support.grpc.tls_channels import server_credentials

from authplane.core.secret import Secret
from authplane.dataplane.filters.calls import Answered, Ask, Code, Outcome, Unanswered
from authplane.dataplane.filters.extauthz.service_config.service import (
    AccessToken,
    NamedCredentials,
    SideChannel,
    XdsOr,
)
from authplane.dataplane.runtime.connections.side_channels import (
    AioSideChannels,
    CallEndedError,
    SideChannels,
    channel_keys,
)
from authplane.xds.bootstrap.credentials import IdentityFiles, Insecure, ServiceCredentials, TlsFiles

METHOD = "/envoy.service.auth.v3.Authorization/Check"
PLAIN = NamedCredentials(channel=Insecure())


def asking(key: object, timeout: float | None = 5.0, **more: Any) -> Ask:
    return Ask(channel=key, method=METHOD, request=b"", timeout=timeout, **more)


class Either:
    """Side channels of either kind, asked from an event loop."""

    def __init__(self, stack: str) -> None:
        self.stack = stack
        self.side: Any = SideChannels() if stack == "threads" else AioSideChannels()

    async def ask(self, ask: Ask) -> Outcome:
        if self.stack == "threads":
            made: Outcome = await asyncio.to_thread(self.side.ask, ask)
            return made
        answer: Outcome = await self.side.ask(ask)
        return answer

    async def close(self) -> None:
        if self.stack == "threads":
            self.side.close()
        else:
            await self.side.close()


@pytest.fixture(params=["threads", "loop"])
async def side(request: pytest.FixtureRequest) -> Any:
    made = Either(request.param)
    yield made
    await made.close()


@pytest.fixture
def authority() -> Iterator[Authority]:
    with authorizing() as made:
        yield made


def ports_of(authority: Authority) -> Callable[[], set[str]]:
    """Return what tells from which connections was asked."""
    seen: set[str] = set()
    inner = authority.check

    def check(body: bytes, context: grpc.ServicerContext) -> bytes:
        seen.add(context.peer())
        return inner(body, context)

    authority.check = check  # type: ignore[method-assign]
    return lambda: seen


@pytest.mark.requirement("GS-12", "HF-24")
async def test_equal_keys_share_a_channel_that_updates_keep(side: Either) -> None:
    authority = Authority()
    seen = ports_of(authority)
    with authorizing(authority=authority):
        key = SideChannel(target=authority.target, credentials=PLAIN)
        same = SideChannel(target=authority.target, credentials=NamedCredentials(channel=Insecure()))
        side.side.keep(frozenset({key}))
        for each in (key, same, key):
            assert isinstance(await side.ask(asking(each)), Answered)
            side.side.keep(frozenset({same}))
        assert (len(seen()), len(side.side)) == (1, 1)


async def test_what_no_configuration_names_any_more_is_closed_when_it_is_no_longer_busy(
    side: Either, authority: Authority
) -> None:
    key = SideChannel(target=authority.target, credentials=PLAIN)
    side.side.keep(frozenset({key}))
    authority.hold.clear()
    busy = asyncio.create_task(side.ask(asking(key)))
    assert await asyncio.to_thread(authority.asked.wait, 5)
    side.side.keep(frozenset())
    authority.hold.set()
    assert isinstance(await busy, Answered)
    assert len(side.side) == 0
    # Somebody may still have the old configuration in hand.
    assert isinstance(await side.ask(asking(key)), Answered)
    assert len(side.side) == 0


async def test_a_key_that_was_asked_often_is_forgotten_when_no_configuration_names_it(side: Either) -> None:
    authority = Authority()
    seen = ports_of(authority)
    kept = []
    with authorizing(authority=authority):
        key = SideChannel(target=authority.target, credentials=PLAIN)
        for keys in (frozenset({key}), frozenset[SideChannel](), frozenset({key})):
            side.side.keep(keys)
            for _ in range(3):
                assert isinstance(await side.ask(asking(key)), Answered)
            kept.append(len(side.side))
    assert kept == [1, 0, 1]
    # Those in the middle were for one call each; a port may be used again.
    assert len(seen()) > 1


async def test_a_service_that_is_not_there_is_no_answer(side: Either) -> None:
    with authorizing() as gone:
        pass
    answer = await side.ask(asking(SideChannel(target=gone.target, credentials=PLAIN)))
    assert isinstance(answer, Unanswered)
    assert answer.code is Code.UNAVAILABLE


async def test_a_service_that_takes_too_long_is_no_answer(side: Either, authority: Authority) -> None:
    authority.hold.clear()
    answer = await side.ask(asking(SideChannel(target=authority.target, credentials=PLAIN), timeout=0.2))
    assert isinstance(answer, Unanswered)
    assert answer.code is Code.DEADLINE_EXCEEDED


async def test_after_the_end_no_call_is_made(side: Either, authority: Authority) -> None:
    key = SideChannel(target=authority.target, credentials=PLAIN)
    await side.close()
    assert await side.ask(asking(key)) == Unanswered(Code.UNAVAILABLE, "the side channels are closed")
    assert authority.checks == []


@pytest.mark.requirement("GS-5", "GS-6")
async def test_tls_from_files_and_a_token(side: Either, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.authority().certificate)
    credentials = server_credentials(certificates.server("localhost"), mutual=False)
    with authorizing(credentials=credentials) as authority:
        named = NamedCredentials(channel=XdsOr(TlsFiles(ca=str(ca))), calls=(AccessToken(Secret("t0ken")),))
        key = SideChannel(target=authority.target, credentials=named)
        assert isinstance(await side.ask(asking(key, metadata=(("x-a", "1"),))), Answered)
        assert {("authorization", "Bearer t0ken"), ("x-a", "1")} <= set(authority.metadata[0])


async def test_credentials_of_the_program_and_of_a_bootstrap(side: Either, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.authority().certificate)
    credentials = server_credentials(certificates.server("localhost"), mutual=False)
    with authorizing(credentials=credentials) as authority:
        for each in (
            grpc.ssl_channel_credentials(certificates.authority().certificate),
            ServiceCredentials(channel=TlsFiles(ca=str(ca))),
        ):
            assert isinstance(await side.ask(asking(SideChannel(target=authority.target, credentials=each))), Answered)


async def test_files_that_cannot_be_used_are_no_answer(side: Either, authority: Authority, tmp_path: Path) -> None:
    files = TlsFiles(identity=IdentityFiles(f"{tmp_path}/missing.crt", f"{tmp_path}/missing.key"))
    answer = await side.ask(asking(SideChannel(target=authority.target, credentials=ServiceCredentials(channel=files))))
    assert isinstance(answer, Unanswered)
    assert answer.code is Code.UNAVAILABLE
    assert "missing.crt" in answer.message


async def test_a_channel_is_replaced_when_its_files_are(side: Either, tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.authority().certificate)
    credentials = server_credentials(certificates.server("localhost"), mutual=False)
    authority = Authority()
    seen = ports_of(authority)
    with authorizing(credentials=credentials, authority=authority):
        files = TlsFiles(ca=str(ca), refresh=0.0)
        key = SideChannel(target=authority.target, credentials=ServiceCredentials(channel=files))
        side.side.keep(frozenset({key}))
        for _ in range(2):
            assert isinstance(await side.ask(asking(key)), Answered)
        assert len(seen()) == 1
        ca.write_bytes(certificates.authority().certificate + b"\n")
        assert isinstance(await side.ask(asking(key)), Answered)
        assert (len(seen()), len(side.side)) == (2, 1)


def test_a_side_call_without_a_limit_ends_with_the_call_it_is_for(authority: Authority) -> None:
    authority.hold.clear()
    side = SideChannels()
    ends: SimpleQueue[Callable[[], None]] = SimpleQueue()
    raised: list[type[Exception]] = []

    def when_ended(callback: Callable[[], None]) -> bool:
        ends.put(callback)
        return True

    ask = asking(SideChannel(target=authority.target, credentials=PLAIN), timeout=None)

    def give_up() -> None:
        with pytest.raises(CallEndedError) as caught:
            side.ask(ask, when_ended)
        raised.append(caught.type)

    asked = threading.Thread(target=give_up)
    asked.start()
    assert authority.asked.wait(5)
    ends.get(timeout=5)()
    asked.join(5)
    assert raised == [CallEndedError]
    side.close()


@dataclass(frozen=True)
class Inner:
    key: SideChannel


@dataclass(frozen=True)
class Outer:
    inner: Inner
    several: tuple[Inner, ...]
    named: Any


class Other:
    def __init__(self, key: SideChannel) -> None:
        self.side_channels = (key,)


def test_channel_keys_are_found_wherever_they_stand() -> None:
    one, two, three, four = (SideChannel(target=name, credentials=PLAIN) for name in "abcd")
    value = Outer(Inner(one), (Inner(two),), MappingProxyType({"x": [Inner(three), Other(four), "text", None]}))
    assert channel_keys(value) == {one, two, three, four}


def test_parts_in_several_places_are_inspected_once() -> None:
    key = SideChannel(target="a", credentials=PLAIN)
    value: object = Inner(key)
    for _ in range(200):
        value = (value, {"again": value})
    assert channel_keys(value) == {key}
