"""Whether the policy server accepts us, tried from here as Envoy does it."""

from typing import assert_never

from authplane.graph.policy_server import OverSocket, OverTcp, PolicyServer, Where
from authplane.graph.upstreams import CaFile, Plaintext
from authplane.io.handshake import ClientTls
from authplane.io.listen import Address, TcpAddress, UnixAddress


def dialled(server: PolicyServer) -> tuple[Address, ...]:
    """Return where the policy server is tried."""
    return (_address(server.where),)


def dialled_with(server: PolicyServer) -> ClientTls | None:
    """Return the TLS with which it is tried; None is plain text."""
    tls = server.tls
    if isinstance(tls, Plaintext):
        return None
    return ClientTls(ca=tls.ca.path if isinstance(tls.ca, CaFile) else tls.ca, server_name=tls.server_name)


def _address(where: Where) -> Address:
    match where:
        case OverTcp(host, port):
            return TcpAddress(host=host, port=port)
        case OverSocket(path):
            return UnixAddress(path=path)
        case _:
            assert_never(where)
