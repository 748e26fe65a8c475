"""Certificates for workers, renewed while the machine has its troubles."""

import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from tests.support.certificates import server

from authplane.authserver.fronts.runtime.pyvoy.pyvoy_config import CERTIFICATE
from authplane.authserver.fronts.runtime.pyvoy.worker_certificates import Certificates
from authplane.devkit.identities.throwaway_certificates import KeyPair
from authplane.runtime.servers.listen import TlsPaths

REFUSED = "rejected the new certificate; the last one stays in use"
REPLACED = "replaced the certificate"


def write(folder: Path, pair: KeyPair) -> TlsPaths:
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key.reveal())
    return TlsPaths(certificate=str(folder / "tls.crt"), key=str(folder / "tls.key"))


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    made = tmp_path / "ours"
    made.mkdir(mode=0o700)
    return made


@pytest.mark.requirement("F07")
def test_a_renewal_that_finds_no_room_is_said_once_and_made_as_soon_as_there_is_some(
    tmp_path: Path, ours: Path
) -> None:
    certificates = Certificates(write(tmp_path, server("one.example")), ours)
    shown = certificates.files[CERTIFICATE]
    before = shown.read_bytes()
    blocked = ours / f"{CERTIFICATE}.new"
    blocked.mkdir()
    write(tmp_path, server("two.example"))
    with capture_logs() as lines:
        certificates.scan()
        certificates.scan()
        assert ([line["event"] for line in lines], shown.read_bytes()) == ([REFUSED], before)
        blocked.rmdir()
        certificates.scan()
        assert [line["event"] for line in lines] == [REFUSED, REPLACED]
    assert shown.read_bytes() != before


def test_a_key_that_becomes_readable_later_is_taken_over(tmp_path: Path, ours: Path) -> None:
    certificates = Certificates(write(tmp_path, server("one.example")), ours)
    before = certificates.files[CERTIFICATE].read_bytes()
    write(tmp_path, server("two.example"))
    hidden = tmp_path / "hidden"
    (tmp_path / "tls.key").rename(hidden)
    with capture_logs() as lines:
        certificates.scan()
        hidden.rename(tmp_path / "tls.key")
        certificates.scan()
    assert [line["event"] for line in lines] == [REFUSED, REPLACED]
    assert certificates.files[CERTIFICATE].read_bytes() != before


def test_files_that_were_tidied_away_are_there_again_for_the_next_worker(tmp_path: Path, ours: Path) -> None:
    certificates = Certificates(write(tmp_path, server("one.example")), ours)
    shown = certificates.files[CERTIFICATE]
    before = shown.read_bytes()
    shown.unlink()
    certificates.restore()
    assert (shown.read_bytes(), shown.stat().st_mode & 0o777) == (before, 0o600)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of somebody else")
def test_no_key_is_written_into_a_folder_that_somebody_put_in_the_place_of_ours(tmp_path: Path, ours: Path) -> None:
    certificates = Certificates(write(tmp_path, server("one.example")), ours)
    shutil.rmtree(ours)
    ours.mkdir(mode=0o777)
    os.chown(ours, 65534, 65534)
    with pytest.raises(PermissionError, match=r"^another user owns the folder"):
        certificates.restore()
    assert not list(ours.iterdir())
