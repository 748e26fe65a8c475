"""Certificates that are renewed while a server runs."""

import logging
import shutil
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.support.authservers.check_requests import check
from tests.support.authservers.told_checks import Told
from tests.support.certificates import authority, server

from authplane.authserver.backends.testserver import TestServer
from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.devkit.identities.throwaway_certificates import KeyPair
from authplane.runtime.servers.listen import Address, TcpAddress, TlsPaths, TlsUnusableError
from authplane.runtime.servers.service_names import SERVICE
from authplane.runtime.servers.tls_files import TlsFiles

BODY = check("/").SerializeToString()


def write(folder: Path, pair: KeyPair) -> None:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key.reveal())


def opened(folder: Path) -> TlsFiles:
    files = TlsFiles.open(certificate=str(folder / "tls.crt"), key=str(folder / "tls.key"))
    assert files is not None
    return files


def test_nothing_is_new_until_the_files_change(tmp_path: Path) -> None:
    write(tmp_path, server("one.example"))
    files = opened(tmp_path)
    assert files.renewed() is None
    write(tmp_path, server("two.example"))
    found = files.renewed()
    assert found is not None
    assert found.certificate == server("two.example").certificate
    assert files.current == found
    assert files.renewed() is None


@pytest.mark.parametrize("spoiled", ["half", "garbage", "gone"])
def test_files_that_cannot_be_used_leave_what_was_read_before(tmp_path: Path, spoiled: str) -> None:
    write(tmp_path, server("one.example"))
    files = opened(tmp_path)
    match spoiled:
        case "half":
            (tmp_path / "tls.crt").write_bytes(server("two.example").certificate)
        case "garbage":
            (tmp_path / "tls.crt").write_text("nonsense", encoding="utf-8")
        case _:
            (tmp_path / "tls.key").unlink()
    assert files.renewed() is None
    assert files.current.certificate == server("one.example").certificate
    write(tmp_path, server("two.example"))
    assert files.renewed() is not None


def test_the_same_content_written_again_is_not_new(tmp_path: Path) -> None:
    write(tmp_path, server("one.example"))
    files = opened(tmp_path)
    shutil.copy(tmp_path / "tls.crt", tmp_path / "copy")
    (tmp_path / "copy").replace(tmp_path / "tls.crt")
    assert files.renewed() is None


def test_without_paths_there_is_no_tls_and_with_bad_ones_no_server(tmp_path: Path) -> None:
    assert TlsFiles.open(certificate="", key="") is None
    with pytest.raises(TlsUnusableError):
        TlsFiles.open(certificate=str(tmp_path / "missing"), key=str(tmp_path / "missing"))


async def speaks_as(address: Address, name: str) -> bool:
    options = [("grpc.ssl_target_name_override", name), ("grpc.use_local_subchannel_pool", 1)]
    credentials = grpc.ssl_channel_credentials(authority().certificate)
    async with grpc.aio.secure_channel(str(address), credentials, options=options) as channel:
        call: Any = channel.unary_unary(f"/{SERVICE}/Check")
        try:
            await call(BODY, timeout=5)
        except grpc.aio.AioRpcError:
            return False
    return True


@pytest.mark.requirement("X17")
async def test_a_running_server_shows_the_new_certificate_and_keeps_open_connections(tmp_path: Path) -> None:
    write(tmp_path, server("one.example"))
    tls = TlsPaths(certificate=str(tmp_path / "tls.crt"), key=str(tmp_path / "tls.key"))
    front = FrontPlan(address=TcpAddress(host="127.0.0.1", port=0), tls=tls)
    options = [("grpc.ssl_target_name_override", "one.example"), ("grpc.use_local_subchannel_pool", 1)]
    credentials = grpc.ssl_channel_credentials(authority().certificate)
    async with (
        serve_authz(TestServer(), front, observer=Told()) as address,
        grpc.aio.secure_channel(str(address), credentials, options=options) as kept,
    ):
        call: Any = kept.unary_unary(f"/{SERVICE}/Check")
        await call(BODY, timeout=5)
        write(tmp_path, server("two.example"))
        assert await speaks_as(address, "two.example")
        assert not await speaks_as(address, "one.example")
        await call(BODY, timeout=5)


def test_events_of_the_files_are_reported_to_the_program(tmp_path: Path) -> None:
    write(tmp_path, server("one.example"))
    told: list[tuple[int, str]] = []
    path = tmp_path / "tls.crt"
    files = TlsFiles.open(
        certificate=str(path),
        key=str(tmp_path / "tls.key"),
        tell=lambda level, sentence: told.append((level, sentence)),
    )
    assert files is not None
    write(tmp_path, server("two.example"))
    assert files.renewed() is not None
    path.write_text("rubbish")
    assert files.renewed() is None
    assert [level for level, _ in told] == [logging.INFO, logging.WARNING]
    assert told[0] == (logging.INFO, f"loaded changed TLS files: {path}")
