"""What our gRPC servers have in common: how they take an address."""

from pathlib import Path
from typing import assert_never

import grpc
import grpc.aio

from authplane.io.listen import Address, AddressTakenError, ServerTls, TcpAddress, UnixAddress


def bind(server: grpc.aio.Server, address: Address, tls: ServerTls | None) -> Address:
    """Take an address for a server; returns it with the port that was really taken.

    Only this user can connect to a unix socket. Call `claim` first: its sentence says more.
    """
    target = f"[::]:{address.port}" if isinstance(address, TcpAddress) and not address.host else str(address)
    try:
        port = server.add_insecure_port(target) if tls is None else server.add_secure_port(target, _credentials(tls))
    except RuntimeError as error:
        raise AddressTakenError(f"cannot listen on {address}: another program may be listening there") from error
    match address:
        case TcpAddress(host=host):
            return TcpAddress(host=host, port=port)
        case UnixAddress(path=path):
            Path(path).chmod(0o600)
            return address
        case _:
            assert_never(address)


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key.reveal(), tls.certificate)],
        root_certificates=tls.client_ca,
        require_client_auth=tls.client_ca is not None,
    )
