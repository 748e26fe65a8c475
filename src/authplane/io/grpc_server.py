"""What our gRPC servers have in common: how they take an address."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias, assert_never, cast

import grpc
import grpc.aio

from authplane.io.listen import Address, AddressTakenError, ServerTls, TcpAddress, UnixAddress
from authplane.io.tls_files import TlsFiles

Tls: TypeAlias = ServerTls | TlsFiles
"""What a server shows: always the same, or what its files hold."""


def bind(server: grpc.aio.Server, address: Address, tls: Tls | None) -> Address:
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


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    match tls:
        case ServerTls():
            return grpc.ssl_server_credentials(
                [(tls.key.reveal(), tls.certificate)],
                root_certificates=tls.client_ca,
                require_client_auth=tls.client_ca is not None,
            )
        case TlsFiles():

            def renewed() -> grpc.ServerCertificateConfiguration | None:
                found = tls.renewed()
                return None if found is None else _configuration(found)

            # gRPC takes None for "no change", which its types do not say.
            fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)
            return grpc.dynamic_ssl_server_credentials(
                _configuration(tls.current), fetch, require_client_authentication=tls.client_ca is not None
            )
        case _:
            assert_never(tls)


def _configuration(tls: ServerTls) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(tls.key.reveal(), tls.certificate)], root_certificates=tls.client_ca
    )
