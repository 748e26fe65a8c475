"""How our gRPC servers bind an address, and how they are replaced when they end."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NoReturn, TypeAlias, assert_never, cast

import grpc
import grpc.aio
import structlog

from authplane.runtime.child_processes import owned_tasks, place_of
from authplane.runtime.servers.listen import Address, AddressTakenError, ServerTls, TcpAddress, UnixAddress, claim
from authplane.runtime.servers.tls_files import TlsFiles

Tls: TypeAlias = ServerTls | TlsFiles
"""The certificate of a server: fixed, or read from files that may change."""


_LOOK: Final = 0.1
"""Seconds between two looks at a server."""
_PATIENCE: Final = 5.0
"""Maximum seconds until a port is free again."""

_log: Final = structlog.stdlib.get_logger()


@asynccontextmanager
async def serve_grpc(
    build: Callable[[], grpc.aio.Server], address: Address, tls: Tls | None, *, grace: float
) -> AsyncGenerator[Address]:
    """Serve while the block runs; yields the address with the port that was really taken.

    Raises a `ListenError` if the address is taken. grpcio ends a server when a client sends a path that is not UTF-8.
    This function then starts a new server. Calls in progress have ``grace`` seconds to finish, as at the block's end.
    """
    claim(address)
    kept = _Kept(build, tls, grace=grace)
    bound = await kept.begin(address)
    async with owned_tasks() as tasks:
        keeper = tasks.create_task(kept.keep(bound, tasks))
        try:
            yield bound
        finally:
            keeper.cancel()
            await kept.end()


class _Kept:
    """A server that is replaced when it ends unexpectedly."""

    def __init__(self, build: Callable[[], grpc.aio.Server], tls: Tls | None, *, grace: float) -> None:
        self._build = build
        self._tls = tls
        self._grace = grace
        self._server = build()

    async def begin(self, address: Address) -> Address:
        """Start the server."""
        bound = bind(self._server, address, self._tls)
        await self._server.start()
        return bound

    async def end(self) -> None:
        """Stop the server."""
        await self._server.stop(self._grace)

    async def keep(self, bound: Address, tasks: asyncio.TaskGroup) -> NoReturn:
        """Replace the server whenever it ends, forever."""
        while True:
            try:
                await self._server.wait_for_termination(_LOOK)
            except Exception as error:  # noqa: BLE001 (checks need a server, whatever the error)
                _log.error("replacing a gRPC server that ended", error=place_of(error))
                tasks.create_task(self._server.stop(self._grace))
                await self._replace(bound)

    async def _replace(self, bound: Address) -> None:
        async with asyncio.timeout(_PATIENCE):
            while True:
                self._server = self._build()
                try:
                    await self.begin(bound)
                except AddressTakenError:
                    await asyncio.sleep(_LOOK)
                else:
                    return


def bind(server: grpc.aio.Server, address: Address, tls: Tls | None) -> Address:
    """Bind a server to an address; returns the address with the actual port.

    Only this user can connect to a unix socket. Call `claim` first: its error message says more.
    """
    target = f"[::]:{address.port}" if isinstance(address, TcpAddress) and not address.host else str(address)
    try:
        port = server.add_insecure_port(target) if tls is None else server.add_secure_port(target, _credentials(tls))
    except RuntimeError as error:
        raise AddressTakenError(address, "another program may be listening there") from error
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

            # For gRPC, None means "no change"; its type hints omit that.
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
