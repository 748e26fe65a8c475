"""Channels with the credentials that a bootstrap names."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support import certificates
from tests.support.grpc.token_calls import OPTIONS, Outcome, Server, aio_outcome, outcome, serving
from tests.support.issuers.jwt_files import token

from authplane.dataplane.runtime.connections.dialing import CredentialsUnusableError, Dialer
from authplane.devkit.identities.throwaway_certificates import KeyPair
from authplane.xds.bootstrap.credentials import (
    ChannelCredentials,
    GoogleDefault,
    IdentityFiles,
    Insecure,
    JwtTokenFile,
    ServiceCredentials,
    TlsFiles,
)

OK, UNAUTHENTICATED = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve whoever shows a certificate."""
    with serving(client_ca=certificates.authority().certificate) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_bytes(certificates.authority().certificate)
    write(tmp_path, certificates.client("one"))
    (tmp_path / "token").write_text(token(int(time.time()) + 3600))
    return tmp_path


def write(folder: Path, pair: KeyPair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key.reveal())


def text(path: Path) -> str:
    return path.read_text()


def mutual(folder: Path, refresh: float = 600) -> TlsFiles:
    identity = IdentityFiles(str(folder / "tls.crt"), str(folder / "tls.key"))
    return TlsFiles(ca=str(folder / "ca.crt"), identity=identity, refresh=refresh)


async def asked(dialer: Dialer) -> tuple[Outcome, Outcome]:
    """Make a call on a channel of each kind."""
    with dialer.open(OPTIONS) as channel:
        first = await asyncio.to_thread(outcome, "unary", channel)
    async with await dialer.open_aio(OPTIONS) as channel_of_loop:
        return first, await aio_outcome("unary", channel_of_loop)


@pytest.mark.requirement("BS-4", "JW-9")
async def test_both_kinds_of_channels_show_the_certificate_and_send_the_token(server: Server, folder: Path) -> None:
    calls = (JwtTokenFile(str(folder / "token")),)
    want = Outcome(OK, f"Bearer {text(folder / 'token')}")
    dialer = Dialer(server.secure, ServiceCredentials(channel=mutual(folder), calls=calls))
    assert await asked(dialer) == (want, want)


@pytest.mark.requirement("BS-1")
async def test_all_call_credentials_apply_in_order(server: Server, folder: Path) -> None:
    other = folder / "other"
    await asyncio.to_thread(other.write_text, token(int(time.time()) + 3600, "other"))
    calls = tuple(JwtTokenFile(str(path)) for path in (folder / "token", other))
    got = await asked(Dialer(server.secure, ServiceCredentials(channel=mutual(folder), calls=calls)))
    both = [f"Bearer {text(path)}" for path in (folder / "token", other)]
    assert [sorted(each.text.split(",")) for each in got] == [sorted(both)] * 2


@pytest.mark.requirement("JW-9")
async def test_a_stream_that_is_written_and_read_by_hand_carries_the_token(server: Server, folder: Path) -> None:
    calls = (JwtTokenFile(str(folder / "token")),)
    dialer = Dialer(server.secure, ServiceCredentials(channel=mutual(folder), calls=calls))
    async with asyncio.timeout(5), await dialer.open_aio(OPTIONS) as channel:
        call: Any = channel.stream_stream("/test.Echo/StreamStream")()
        await call.write(b"")
        await call.done_writing()
        assert (await call.read()).decode() == f"Bearer {text(folder / 'token')}"
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is OK


async def test_plain_text_is_spoken_where_the_bootstrap_says_so(server: Server) -> None:
    assert await asked(Dialer(server.open, ServiceCredentials(channel=Insecure()))) == (Outcome(OK, ""),) * 2


@pytest.mark.requirement("JW-10", "W10")
async def test_no_token_is_sent_in_plain_text(server: Server, folder: Path) -> None:
    server.seen.clear()
    calls = (JwtTokenFile(str(folder / "token")),)
    got = await asked(Dialer(server.open, ServiceCredentials(channel=Insecure(), calls=calls)))
    assert [each.code for each in got] == [UNAUTHENTICATED] * 2
    assert server.seen == []


@pytest.mark.requirement("BS-4")
def test_new_certificates_are_noticed_as_often_as_the_bootstrap_says(folder: Path) -> None:
    now = 0.0
    dialer = Dialer("a:1", ServiceCredentials(channel=mutual(folder, refresh=10)), clock=lambda: now)
    dialer.open().close()
    now = 10.0
    assert not dialer.changed()
    write(folder, certificates.client("two"))
    now = 19.9
    assert not dialer.changed(), "nobody looks yet"
    now = 20.0
    assert dialer.changed()
    dialer.open().close()
    now = 30.0
    assert not dialer.changed(), "the new channel has them"


@pytest.mark.requirement("BS-4")
def test_certificates_that_cannot_be_used_do_not_replace_those_in_use(folder: Path) -> None:
    now = 0.0
    dialer = Dialer("a:1", ServiceCredentials(channel=mutual(folder, refresh=10)), clock=lambda: now)
    dialer.open().close()
    (folder / "tls.crt").write_bytes(certificates.client("two").certificate)
    now = 10.0
    assert not dialer.changed(), "a certificate without its key"
    (folder / "tls.key").write_bytes(certificates.client("two").key.reveal())
    now = 20.0
    assert dialer.changed()


@pytest.mark.parametrize("credentials", [Insecure(), GoogleDefault()])
def test_what_is_in_no_file_does_not_change(credentials: ChannelCredentials) -> None:
    now = 0.0
    dialer = Dialer("a:1", ServiceCredentials(channel=credentials), clock=lambda: now)
    now = 1e9
    assert not dialer.changed()


@pytest.mark.parametrize(
    ("broken", "content", "why"),
    [
        ("ca.crt", b"rubbish", "ca.crt contains no CA certificate in PEM format. Replace the file."),
        ("ca.crt", None, "/ca.crt: No such file or directory"),
        ("tls.crt", None, "/tls.crt: No such file or directory"),
        ("tls.crt", b"", "tls.key are not a certificate and its key"),
        ("tls.key", b"rubbish", "tls.key are not a certificate and its key"),
        ("tls.key", certificates.client("two").key.reveal(), "tls.key are not a certificate and its key"),
    ],
    ids=["no PEM", "no CA", "no certificate", "an empty certificate", "no key", "the key of another"],
)
async def test_credentials_that_cannot_be_used_are_an_error(
    folder: Path, broken: str, content: bytes | None, why: str
) -> None:
    path = folder / broken
    await asyncio.to_thread(path.unlink)
    if content is not None:
        await asyncio.to_thread(path.write_bytes, content)
    dialer = Dialer("a:1", ServiceCredentials(channel=mutual(folder)))
    with pytest.raises(CredentialsUnusableError, match=why):
        dialer.open()
    with pytest.raises(CredentialsUnusableError, match=why):
        await dialer.open_aio()


def test_google_default_needs_its_package() -> None:
    with pytest.raises(CredentialsUnusableError, match="google-auth"):
        Dialer("a:1", ServiceCredentials(channel=GoogleDefault())).open()
