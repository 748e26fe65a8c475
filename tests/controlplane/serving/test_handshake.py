"""One attempt to reach an HTTP/2 server: what is in the way is named, also by a server that wants a certificate."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.authservers.asked_services import Recording
from tests.support.authservers.told_checks import Told
from tests.support.certificates import authority, client, server

from authplane.authserver.fronts.runtime.grpcio_front import serve_authz
from authplane.authserver.plan.server_plan import FrontPlan
from authplane.controlplane.serving.runtime.handshake import (
    Cause,
    ClientTls,
    NotTried,
    PemFiles,
    PemPair,
    Refused,
    greet,
)
from authplane.devkit.identities.throwaway_certificates import KeyPair
from authplane.runtime.servers.listen import Address, ServerTls, TcpAddress

HERE = TcpAddress(host="127.0.0.1", port=0)
NAME = "policy.example"
CA = authority().certificate


def shown(pair: KeyPair) -> PemPair:
    return PemPair(certificate=pair.certificate, key=pair.key)


@asynccontextmanager
async def serving(*, tls: bool = True, clients: bool = True, address: Address = HERE) -> AsyncGenerator[Address]:
    pair = server(NAME)
    shown = ServerTls(certificate=pair.certificate, key=pair.key, client_ca=CA if clients else None) if tls else None
    async with serve_authz(Recording(), FrontPlan(address=address), observer=Told(), tls=shown) as bound:
        yield bound


class Case(NamedTuple):
    tls: ClientTls | None
    want: Cause | None
    server_tls: bool = True


CASES = {
    "with a certificate of the CA": Case(ClientTls(ca=CA, server_name=NAME, shown=shown(client("envoy"))), None),
    "by an address in the certificate": Case(
        ClientTls(ca=CA, server_name="127.0.0.1", shown=shown(client("envoy"))), None
    ),
    "without a certificate": Case(ClientTls(ca=CA, server_name=NAME), Cause.HANDSHAKE),
    "with a certificate for servers": Case(
        ClientTls(ca=CA, server_name=NAME, shown=shown(server("x"))), Cause.HANDSHAKE
    ),
    "for another name": Case(
        ClientTls(ca=CA, server_name="other.example", shown=shown(client("envoy"))), Cause.SERVER_CERTIFICATE
    ),
    "without TLS": Case(None, Cause.PROTOCOL),
    "with TLS where there is none": Case(ClientTls(ca=CA, server_name=NAME), Cause.HANDSHAKE, server_tls=False),
    "without TLS where there is none": Case(None, None, server_tls=False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_the_cause_is_named(case: Case) -> None:
    async with serving(tls=case.server_tls) as address:
        refused = await greet(address, case.tls)
    assert (refused.cause if isinstance(refused, Refused) else None) is case.want


async def test_a_reason_has_no_full_stop_since_a_sentence_goes_on_with_it() -> None:
    async with serving() as address:
        refused = await greet(address, CASES["for another name"].tls)
    assert isinstance(refused, Refused)
    assert refused.why.endswith("certificate is not valid for 'other.example'")


async def test_no_server_listens() -> None:
    async with serving(tls=False) as address:
        pass
    assert await greet(address, None) == Refused(cause=Cause.UNREACHABLE, why="Connection refused")


async def test_files_that_are_not_here_are_no_verdict(tmp_path: Path) -> None:
    files = PemFiles(certificate=str(tmp_path / "missing.crt"), key=str(tmp_path / "missing.key"))
    for tls, path in (
        (ClientTls(ca=CA, server_name=NAME, shown=files), files.certificate),
        (ClientTls(ca=str(tmp_path / "ca.crt"), server_name=NAME), str(tmp_path / "ca.crt")),
    ):
        found = await greet(HERE, tls)
        assert isinstance(found, NotTried)
        assert path in found.why
