"""What gRPC's core writes about failed handshakes is reported, and everything else is left alone."""

import asyncio
import ssl
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.support.certificates import authority, server
from tests.support.eventually import eventually
from tests.support.ports import free_port

from authplane.devkit.identities.throwaway_certificates import Leaf, Usage, create_authority, issue
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.servers.grpc_lines import FailedHandshake, HandshakeLines

WHY = "SSL_ERROR_SSL: error:100000c0:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid"
FAILED = f"I1116 18:24:43.831316    2967 ssl_transport_security.cc:2563] Handshake failed with error {WHY}"
TRACED = (
    "I1116 18:24:43.831366    2967 handshaker.cc:155] CallNextHandshakerLocked: error=UNKNOWN: Ssl handshake failed"
)
PLACE = "=== Source Location Trace: === "
REST = " shutdown=false index=2, args={endpoint=0x7e, grpc.internal.endpoint_peer_address=ipv4:10.0.0.7:49184, grpc.x=1"
OTHER = "I1116 18:24:43.831366    2968 handshaker.cc:155] x grpc.internal.endpoint_peer_address=ipv4:10.0.0.8:1, x"
CASES = {
    "a client is named behind the failure": ([FAILED, TRACED, PLACE, REST], [FailedHandshake("10.0.0.7:49184", WHY)]),
    "a client of another thread is not meant": (
        [FAILED, OTHER, TRACED, REST],
        [FailedHandshake("10.0.0.7:49184", WHY)],
    ),
    "a handshake that succeeds": ([OTHER, PLACE, "src/core/util/status_helper.cc:68", ""], []),
    "another line of gRPC": (
        ["E1116 18:24:43.8    2967 server.cc:1] bad"],
        ["E1116 18:24:43.8    2967 server.cc:1] bad"],
    ),
    "a line of somebody else": (["Fatal Python error: x"], ["Fatal Python error: x"]),
    "IPv6": (
        [FAILED, TRACED, REST.replace("ipv4:10.0.0.7:49184", "ipv6:%5B::1%5D:5")],
        [FailedHandshake("[::1]:5", WHY)],
    ),
}


@pytest.mark.parametrize(("lines", "want"), CASES.values(), ids=CASES.keys())
def test_lines_of_the_core(lines: list[str], want: list[FailedHandshake | str]) -> None:
    reader = HandshakeLines()
    assert [found for line in lines if (found := reader.take(line)) is not None] == want
    assert list(reader.rest()) == []


def test_a_failure_without_a_client_is_reported_too() -> None:
    reader = HandshakeLines()
    assert reader.take(FAILED) is None
    assert list(reader.rest()) == [FailedHandshake("", WHY)]


@pytest.mark.real
async def test_the_control_plane_logs_who_could_not_connect_and_why(tmp_path: Path) -> None:
    pair, folder, lines, port = server("localhost"), tmp_path / "folder", list[Line](), free_port()
    folder.mkdir()
    for name, content in (("ca", authority().certificate), ("crt", pair.certificate), ("key", pair.key.reveal())):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)

    async def sink(line: Line) -> None:
        lines.append(line)

    files = [
        f"--tls-{option}-path={tmp_path / name}" for option, name in (("ca", "ca"), ("cert", "crt"), ("key", "key"))
    ]
    argv = [sys.executable, "-m", "authplane", "control", str(folder), "--address", f"127.0.0.1:{port}", *files]
    argv += ["--metrics-address", "", "--log-format", "text", "--state-dir", str(tmp_path / "state")]
    async with run_process(argv, sink=sink, grace=5):

        async def says(words: str) -> bool:
            return any(words in line.text for line in lines)

        await eventually(lambda: says("control plane listening"))
        peer = await _connect(port, tmp_path)
        await eventually(lambda: says("TLS handshake failed"))
    [said] = (line.text for line in lines if "TLS handshake failed" in line.text)
    why = "the client's certificate is not valid: unable to get local issuer certificate"
    assert f"peer {peer}: {why}. Give the client a client certificate that a CA in --tls-ca-path signed." in said
    assert not [line.text for line in lines if ".cc:" in line.text or ".h:" in line.text]


async def _connect(port: int, folder: Path) -> str:
    """Connect twice with a certificate of another CA, and return the first address."""
    now, day = datetime.now(UTC), timedelta(days=1)
    stranger = issue(
        create_authority("others", now=now, lifetime=day), Leaf(name="x", usage=Usage.CLIENT), now=now, lifetime=day
    )
    (folder / "client.pem").write_bytes(stranger.certificate + stranger.key.reveal())
    context = ssl.create_default_context(cadata=authority().certificate.decode())
    context.load_cert_chain(folder / "client.pem")
    context.set_alpn_protocols(["h2"])
    addresses = []
    for _ in range(2):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context, server_hostname="localhost")
        host, number = writer.get_extra_info("sockname")
        addresses.append(f"{host}:{number}")
        with suppress(ssl.SSLError, ConnectionError):
            assert not await reader.read(1)
        writer.close()
    return addresses[0]
