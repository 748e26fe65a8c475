import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from tests.support.certificates import authority, server
from tests.support.issuers.issuer_server import METADATA, IssuerServer, issuer_server, response
from tests.support.issuers.minting import NOW, Signer, claims, key_set, signer

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, create_authority, issue
from authplane.policy.identity.tokens.check_claims import Times
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.issuer import HttpAnswer, Reach, Schedule
from authplane.policy.identity.tokens.issuer_events import (
    FetchFailed,
    IssuerEvent,
    KeysChanged,
    KeysLoaded,
    MetadataChanged,
)
from authplane.policy.identity.tokens.token_outcome import Reason, Refused, Verified
from authplane.policy.identity.tokens.verify import Demands, NotReady, Trust
from authplane.runtime.issuers.issuer_client import FetchError, FetchLimits, IssuerClient, trusted_by
from authplane.runtime.issuers.issuers import IssuerOptions, Issuers, follow_issuers

OLD, NEW = signer(kid="old"), signer(kid="new", number=1)
DAY: Final = timedelta(days=1)
HURRIED: Final = Schedule(between=0.05, first_retry=0.02)


@pytest.fixture
async def there(tmp_path: Path) -> AsyncGenerator[IssuerServer]:
    async with issuer_server(tmp_path) as running:
        running.publish(OLD)
        yield running


class Watch:
    """Collects events and lets a test wait for one."""

    def __init__(self) -> None:
        self.events: list[IssuerEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: IssuerEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, kind: type[IssuerEvent], count: int = 1) -> IssuerEvent:
        async with asyncio.timeout(5):
            while len(found := [event for event in self.events if isinstance(event, kind)]) < count:
                self._news.clear()
                await self._news.wait()
        return found[-1]


def options(watch: Watch | None = None, **changes: object) -> IssuerOptions:
    return replace(IssuerOptions(schedule=HURRIED), **({"observe": watch} if watch else {}), **changes)  # type: ignore[arg-type]


def token_of(there: IssuerServer, by: Signer = OLD) -> str:
    return by.token(claims(iss=there.url))


def kids(issuers: Issuers, there: IssuerServer) -> list[str | None]:
    held = issuers.keys_of(there.url)
    assert isinstance(held, Trust)
    return [key.kid for key in held.keys.keys]


# What is fetched


@pytest.mark.requirement("R19", "policy:S11")
async def test_keys_are_discovered_once_and_serve_many_tokens(there: IssuerServer) -> None:
    async with follow_issuers([there.issuer()]) as issuers:
        assert issuers.keys_of(there.url) == NotReady(issuer=there.url)
        await issuers.tried(5)
        inspector = TokenInspector(issuers)
        for number in range(50):
            assert isinstance(inspector.inspect(OLD.token(claims(iss=there.url, jti=str(number))), NOW), Verified)
        assert issuers.keys_of("https://other.example") is None
    assert there.asked == [METADATA, "/keys"]


@pytest.mark.requirement("policy:S10", "policy:S12")
async def test_a_new_key_is_fetched_when_a_token_names_it_and_the_change_is_reported(there: IssuerServer) -> None:
    watch = Watch()
    async with follow_issuers([there.issuer()], options(watch)) as issuers:
        await issuers.tried(5)
        inspector = TokenInspector(issuers)
        there.publish(NEW)
        token = token_of(there, NEW)
        assert inspector.inspect(token, NOW) == Refused(reason=Reason.KEY, issuer=there.url, kid="new")
        assert await watch.until(KeysChanged) == KeysChanged(issuer=there.url, added=("new",), removed=("old",))
        assert isinstance(inspector.inspect(token, NOW), Verified)
        assert inspector.inspect(token_of(there, OLD), NOW) == Refused(reason=Reason.KEY, issuer=there.url, kid="old")
        assert issuers.counts[there.url, "KeysChanged"] == 1


@pytest.mark.requirement("policy:S12")
async def test_keys_that_move_are_told(there: IssuerServer) -> None:
    watch = Watch()
    schedule = replace(HURRIED, bounds=replace(HURRIED.bounds, shortest=0.05, usual=0.05))
    async with follow_issuers([there.issuer()], options(watch, schedule=schedule)) as issuers:
        await watch.until(KeysLoaded)
        moved = {"issuer": there.url, "jwks_uri": f"{there.url}/moved"}
        there.answers["/moved"] = there.answers["/keys"]
        there.answers["/keys"] = response(b"", status="410 Gone")
        there.answers[METADATA] = response(json.dumps(moved).encode())
        issuers.wanted(there.url, "unknown")
        event = await watch.until(MetadataChanged)
        assert isinstance(event, MetadataChanged)
        assert event.after.jwks_uri == f"{there.url}/moved"
        assert issuers.counts[there.url, "MetadataChanged"] == 1


@pytest.mark.slow
@pytest.mark.requirement("J27")
async def test_a_flood_of_unknown_keys_causes_one_fetch(there: IssuerServer) -> None:
    now = 0.0
    fetched = Watch()
    async with follow_issuers([there.issuer()], IssuerOptions(observe=fetched, clock=lambda: now)) as issuers:
        await issuers.tried(5)
        now = 100.0
        inspector = TokenInspector(issuers)
        stranger = signer(kid="x", number=1)
        for number in range(500):
            refused = inspector.inspect(stranger.token(claims(iss=there.url), stranger.header(kid=f"k{number}")), NOW)
            assert refused == Refused(reason=Reason.KEY, issuer=there.url, kid=f"k{number}")
        await there.until(lambda issuer: len(issuer.asked) == 3)
        for number in range(500):
            issuers.wanted(there.url, f"more{number}")
        assert kids(issuers, there) == ["old"]
    assert there.asked == [METADATA, "/keys", "/keys"]


# When it fails


@pytest.mark.requirement("J28")
async def test_an_issuer_that_is_down_at_the_start_delays_nothing_and_is_found_later(
    there: IssuerServer, tmp_path: Path
) -> None:
    async with issuer_server(tmp_path) as other:
        there.answers = {METADATA: response(b"", status="503 Service Unavailable")}
        other.publish(NEW)
        watch = Watch()
        async with follow_issuers([there.issuer(), other.issuer()], options(watch)) as issuers:
            await issuers.tried(5)
            inspector = TokenInspector(issuers)
            down = Refused(reason=Reason.ISSUER_NOT_READY, issuer=there.url)
            assert inspector.inspect(token_of(there), NOW) == down
            assert isinstance(inspector.inspect(token_of(other, NEW), NOW), Verified)
            assert {each.issuer: (each.ready, each.why) for each in issuers.standings()} == {
                there.url: (False, "HTTP status 503"),
                other.url: (True, ""),
            }
            there.publish(OLD)
            await watch.until(KeysLoaded, 2)
            assert isinstance(inspector.inspect(token_of(there), NOW), Verified)


@pytest.mark.requirement("J29")
async def test_an_issuer_that_goes_down_later_keeps_its_keys_in_use(there: IssuerServer) -> None:
    watch = Watch()
    async with follow_issuers([there.issuer()], options(watch)) as issuers:
        await issuers.tried(5)
        there.answers = {"/keys": response(b"", status="500 Oh"), METADATA: response(b"", status="500 Oh")}
        issuers.wanted(there.url, "new")
        await watch.until(FetchFailed, 2)
        assert isinstance(TokenInspector(issuers).inspect(token_of(there), NOW), Verified)
        (standing,) = issuers.standings()
        assert (standing.ready, standing.why) == (True, "HTTP status 500")
        assert standing.age is not None


ATTACKS: Final = {
    "too large": response(b" " * (1024 * 1024 + 1)),
    "a gzip bomb": response(gzip.compress(bytes(32 * 1024 * 1024), 1), "Content-Encoding: gzip"),
    "a deflate bomb": response(zlib.compress(bytes(32 * 1024 * 1024), 1), "Content-Encoding: deflate"),
    "less than it said": response(b'{"keys":[]}').replace(b"Content-Length: 11", b"Content-Length: 5000"),
    "packed in an unknown way": response(b"x", "Content-Encoding: br"),
    "packed twice": response(b"x", "Content-Encoding: gzip, gzip"),
    "broken gzip": response(b"\x1f\x8b\x08broken", "Content-Encoding: gzip"),
    "gzip that ends early": response(gzip.compress(b'{"keys":[]}')[:-9], "Content-Encoding: gzip"),
    "no HTTP": b"hello\r\n\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000,
    "two lengths": response(b'{"keys":[]}', "Content-Length: 5"),
}


@pytest.mark.requirement("J26")
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
async def test_a_hostile_answer_is_abandoned_and_the_last_good_one_stays(there: IssuerServer, attack: bytes) -> None:
    watch = Watch()
    async with follow_issuers([there.issuer()], options(watch)) as issuers:
        await issuers.tried(5)
        there.answers["/keys"] = attack
        issuers.wanted(there.url, "new")
        await watch.until(FetchFailed)
        assert kids(issuers, there) == ["old"]


async def test_a_packed_answer_is_read(there: IssuerServer) -> None:
    packed = gzip.compress(key_set(NEW.jwk()))
    there.answers["/keys"] = response(packed, "Content-Encoding: gzip")
    async with follow_issuers([there.issuer()]) as issuers:
        await issuers.tried(5)
        assert kids(issuers, there) == ["new"]


@pytest.mark.slow
@pytest.mark.requirement("J26", "J34")
@pytest.mark.parametrize("kind", ["one byte at a time", "chunks without end", "silence"])
async def test_a_slow_answer_is_cut_off(there: IssuerServer, kind: str) -> None:
    gone = asyncio.Event()

    async def slowly(writer: asyncio.StreamWriter) -> None:
        if kind != "silence":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while not writer.is_closing():
                if kind != "silence":
                    writer.write(b"1\r\n \r\n" if kind == "one byte at a time" else b"400\r\n" + b" " * 1024 + b"\r\n")
                    await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    there.answers["/keys"] = slowly
    limits = FetchLimits(connect=2, read=0.2, total=0.5)
    client = IssuerClient(reach=there.issuer().reach, limits=limits)
    async with asyncio.timeout(3):
        with pytest.raises(FetchError):
            await client.fetch(f"{there.url}/keys")
        if kind != "silence":
            await gone.wait()


@pytest.mark.requirement("J34")
def test_the_time_limits_are_short() -> None:
    assert FetchLimits() == FetchLimits(connect=2, read=2, total=5, largest=1024 * 1024)


@pytest.mark.requirement("J34")
async def test_requests_are_answered_while_an_issuer_is_slow(there: IssuerServer) -> None:
    async def silent(_: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async with follow_issuers([there.issuer()], options()) as issuers:
        await issuers.tried(5)
        there.answers["/keys"] = silent
        issuers.wanted(there.url, "new")
        await there.until(lambda issuer: len(issuer.asked) == 3)
        assert isinstance(TokenInspector(issuers).inspect(token_of(there), NOW), Verified)


@pytest.mark.requirement("J33")
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See", "307 Temporary", "308 Permanent"])
async def test_redirects_are_not_followed(there: IssuerServer, status: str) -> None:
    elsewhere = f"Location: {there.url}/elsewhere"
    there.answers |= {METADATA: response(b"", elsewhere, status=status), "/elsewhere": there.answers[METADATA]}
    watch = Watch()
    async with follow_issuers([there.issuer()], options(watch)) as issuers:
        failed = await watch.until(FetchFailed)
        assert isinstance(failed, FetchFailed)
        assert failed.why == f"HTTP status {status[:3]}"
        assert issuers.keys_of(there.url) == NotReady(issuer=there.url)
    assert "/elsewhere" not in there.asked


# Whom it is fetched from


def expired() -> KeyPair:
    long_ago = datetime.now(UTC) - 10 * DAY
    return issue(authority(), Leaf(name="localhost", dns=("localhost",)), now=long_ago, lifetime=DAY)


def stranger() -> KeyPair:
    now = datetime.now(UTC)
    other = create_authority("other", now=now, lifetime=DAY)
    return issue(other, Leaf(name="localhost", dns=("localhost",)), now=now, lifetime=DAY)


CERTIFICATES: Final = {
    "expired": (expired, "certificate has expired"),
    "for another host": (lambda: server("other.example"), "Hostname mismatch"),
    "from a stranger": (stranger, "certificate verify failed"),
}


@pytest.mark.requirement("J35", "S2")
@pytest.mark.parametrize(("make", "why"), CERTIFICATES.values(), ids=CERTIFICATES.keys())
async def test_a_bad_certificate_gives_no_keys(tmp_path: Path, make: object, why: str) -> None:
    assert callable(make)
    async with issuer_server(tmp_path, make()) as there:
        there.publish(OLD)
        async with follow_issuers([there.issuer()]) as issuers:
            await issuers.tried(5)
            (standing,) = issuers.standings()
            assert why in standing.why
            refused = Refused(reason=Reason.ISSUER_NOT_READY, issuer=there.url)
            assert TokenInspector(issuers).inspect(token_of(there), NOW) == refused
    assert there.heard == b""


@pytest.mark.requirement("J35")
async def test_a_ca_is_set_for_each_issuer_as_text_or_file(there: IssuerServer, tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(authority().certificate)
    for reach in ({}, {"ca_pem": "", "ca_file": str(file)}):
        async with follow_issuers([there.issuer(**reach)]) as issuers:
            await issuers.tried(5)
            assert kids(issuers, there) == ["old"]


@pytest.mark.requirement("J35")
async def test_an_issuer_without_ca_is_verified_by_the_systems(there: IssuerServer) -> None:
    async with follow_issuers([there.issuer(ca_pem="")]) as issuers:
        await issuers.tried(5)
        (standing,) = issuers.standings()
        assert "certificate verify failed" in standing.why


async def test_ssl_cert_file_is_trusted_besides_the_system(
    there: IssuerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "more.pem"
    file.write_bytes(authority().certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with follow_issuers([there.issuer(ca_pem="")]) as issuers:
        await issuers.tried(5)
        assert kids(issuers, there) == ["old"]


async def test_ssl_cert_file_does_not_vouch_for_an_issuer_with_a_ca_of_its_own(
    there: IssuerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "more.pem"
    file.write_bytes(authority().certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    other = create_authority("other", now=datetime.now(UTC), lifetime=DAY)
    async with follow_issuers([there.issuer(ca_pem=other.certificate.decode())]) as issuers:
        await issuers.tried(5)
        assert issuers.keys_of(there.url) == NotReady(issuer=there.url)


@pytest.mark.parametrize("reach", [Reach(ca_file="missing.pem"), Reach(ca_pem="nonsense")], ids=["file", "text"])
def test_certificates_that_cannot_be_read_are_an_error(reach: Reach) -> None:
    with pytest.raises(FetchError, match="cannot read certificates from"):
        trusted_by(reach, {})
    with pytest.raises(FetchError, match=r"gone\.pem"):
        trusted_by(Reach(), {"SSL_CERT_FILE": "gone.pem"})


@pytest.mark.requirement("J32")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]"])
async def test_a_private_address_is_left_before_anything_is_sent(host: str) -> None:
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.read())
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(FetchError, match="the address is private"):
            await IssuerClient(reach=Reach(ca_pem=authority().certificate.decode())).fetch(f"https://{host}:{port}/")
        async with asyncio.timeout(5):
            assert await heard.get() == b"", "not even TLS was begun"


@pytest.mark.requirement("J32")
async def test_private_networks_can_be_allowed_for_all_in_development(there: IssuerServer) -> None:
    private = there.issuer(allow_private_network=False)
    async with follow_issuers([private]) as issuers:
        await issuers.tried(5)
        assert issuers.keys_of(there.url) == NotReady(issuer=there.url)
    async with follow_issuers([private], IssuerOptions(allow_private_networks=True)) as issuers:
        await issuers.tried(5)
        assert kids(issuers, there) == ["old"]


async def test_an_issuer_learns_nothing_about_us(there: IssuerServer) -> None:
    client = IssuerClient(reach=there.issuer().reach)
    assert isinstance(await client.fetch(f"{there.url}/keys"), HttpAnswer)
    names = {line.partition(b":")[0].lower() for line in bytes(there.heard).split(b"\r\n")[1:] if line}
    assert names == {b"host", b"accept", b"accept-encoding", b"user-agent"}


async def test_a_name_that_does_not_resolve_is_an_error() -> None:
    with pytest.raises(FetchError):
        await IssuerClient(reach=Reach()).fetch("https://issuer.invalid/")
    with pytest.raises(FetchError):
        await IssuerClient(reach=Reach()).fetch(f"https://{'a' * 64}.example/")


# Which issuers


async def test_issuers_come_and_go_while_others_keep_their_keys(there: IssuerServer, tmp_path: Path) -> None:
    async with issuer_server(tmp_path) as other, follow_issuers([there.issuer()]) as issuers:
        other.publish(NEW)
        await issuers.tried(5)
        before = issuers.keys_of(there.url)
        issuers.configure([there.issuer(), other.issuer()])
        assert issuers.keys_of(there.url) is before
        await issuers.tried(5)
        assert kids(issuers, other) == ["new"]
        issuers.configure([other.issuer()])
        assert issuers.keys_of(there.url) is None
        issuers.wanted(there.url, "new")
        assert [each.issuer for each in issuers.standings()] == [other.url]


async def test_changed_demands_apply_at_once_and_keep_the_keys(there: IssuerServer) -> None:
    async with follow_issuers([there.issuer()]) as issuers:
        await issuers.tried(5)
        inspector, token = TokenInspector(issuers), OLD.token(claims(iss=there.url, exp=int(NOW) - 10))
        assert isinstance(inspector.inspect(token, NOW), Verified)
        issuers.configure([replace(there.issuer(), demands=Demands(times=Times(skew=0)))])
        assert inspector.inspect(token, NOW) == Refused(reason=Reason.EXPIRED, issuer=there.url, time=int(NOW) - 10)
    assert there.asked == [METADATA, "/keys"]


async def test_an_issuer_with_other_jwks_hosts_is_fetched_again(there: IssuerServer) -> None:
    async with follow_issuers([there.issuer()]) as issuers:
        await issuers.tried(5)
        issuers.configure([there.issuer(jwks_hosts=("keys.example.net",))])
        assert issuers.keys_of(there.url) == NotReady(issuer=there.url)
        await issuers.tried(5)
        assert kids(issuers, there) == ["old"]


async def test_an_issuer_cannot_be_configured_twice(there: IssuerServer) -> None:
    async with follow_issuers([]) as issuers:
        with pytest.raises(ValueError, match="same URL"):
            issuers.configure([there.issuer(), there.issuer()])


async def test_a_key_can_be_wanted_from_another_thread(there: IssuerServer) -> None:
    async with follow_issuers([there.issuer()], options()) as issuers:
        await issuers.tried(5)
        await asyncio.to_thread(issuers.wanted, there.url, "new")
        await there.until(lambda issuer: issuer.asked[-2:] == ["/keys", "/keys"])


@pytest.mark.slow
async def test_a_handshake_that_takes_too_long_leaves_no_connection() -> None:
    left = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        left.set()
        writer.close()

    async with await asyncio.start_server(never_answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        client = IssuerClient(reach=Reach(allow_private_network=True), limits=FetchLimits(total=0.5))
        with pytest.raises(FetchError, match=r"within 0\.5 s"):
            await client.fetch(f"https://127.0.0.1:{port}/")
        async with asyncio.timeout(5):
            await left.wait()
