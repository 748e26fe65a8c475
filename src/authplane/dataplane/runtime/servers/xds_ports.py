"""The addresses of a server that xDS configures."""

import logging
import socket
from dataclasses import field
from typing import Final, TypeAlias

import grpc

from authplane.core.addresses import parse_ip_address
from authplane.core.values import dataclass
from authplane.dataplane.config.listeners import ServerListener
from authplane.dataplane.config.security import ServerTls
from authplane.dataplane.filters.calls import Code, Endpoint, Stop
from authplane.dataplane.filters.registry import Kept
from authplane.dataplane.routing.call_filters import FixedRules
from authplane.dataplane.routing.call_routing import Routed
from authplane.dataplane.routing.resolver import ServerConfiguration
from authplane.dataplane.runtime.calls.call_connection import own_principal
from authplane.dataplane.runtime.calls.call_gate import Gate
from authplane.dataplane.runtime.servers.serving_states import NotServing, ServingState
from authplane.runtime.servers.listen import TlsUnusableError
from authplane.runtime.servers.tls_files import TlsFiles
from authplane.xds.bootstrap.templates import server_listener_name
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap

_log: Final = logging.getLogger("authplane.grpc")

NOT_CONFIGURED: Final = FixedRules(Routed(stop=Stop(code=Code.UNAVAILABLE, message="the server is not configured")))


@dataclass(frozen=True, slots=True)
class XdsServerCredentials:
    """Use the TLS settings of the Listener, or the fallback if it has none; None means plaintext."""

    fallback: grpc.ServerCredentials | None


Credentials: TypeAlias = grpc.ServerCredentials | XdsServerCredentials | None


def refuse_xds(credentials: object) -> None:
    """Raise `TypeError` if a server without xDS is given credentials for one."""
    if isinstance(credentials, XdsServerCredentials):
        raise TypeError("XdsServerCredentials need a server with xDS. Pass xds=True when you create the server.")


class NotServableError(Exception):
    """The server does not support a setting of the Listener."""


@dataclass(slots=True, kw_only=True)
class Port:
    """An address, and what is known of it."""

    address: str
    """``IP:port`` as the server was given it, with the port that was taken."""
    endpoint: Endpoint
    name: str
    """That of its Listener."""
    credentials: Credentials
    gate: Gate
    state: ServingState
    kept: Kept = field(default_factory=Kept)
    met: "Demand | None" = None
    """What the server that takes connections now was made for; None if there is none."""
    configuration: ServerConfiguration | None = None
    reservation: socket.socket

    def open(self, server: "grpc.Server | grpc.aio.Server", credentials: grpc.ServerCredentials | None) -> None:
        """Let a server accept connections here; raises `RuntimeError` if it cannot."""
        if credentials is None:
            server.add_insecure_port(self.address)
        else:
            server.add_secure_port(self.address, credentials)


def reserve(address: str, credentials: Credentials, bootstrap: Bootstrap, default_authority: str | None) -> Port:
    """Claim an address without listening on it; raises `ValueError` or `OSError`."""
    host, port = _split(address)
    reservation = _bound_socket(host, port)
    taken = int(reservation.getsockname()[1])
    full = f"[{host}]:{taken}" if ":" in host else f"{host}:{taken}"
    name = server_listener_name(bootstrap, full)
    if name is None:
        reservation.close()
        raise ValueError(
            "The xDS bootstrap has no template for Listener names. Set server_listener_resource_name_template."
        )
    endpoint = Endpoint(address=host, port=taken)
    gate = Gate(rules=NOT_CONFIGURED, default_authority=default_authority, secured=credentials is not None)
    gate.addresses.bind(endpoint)
    state = NotServing(full, "waiting for the Listener resource")
    return Port(
        address=full, endpoint=endpoint, name=name, credentials=credentials, gate=gate, state=state,
        reservation=reservation,
    )  # fmt: skip


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    plain = host.removeprefix("[").removesuffix("]")
    if parse_ip_address(plain) is None or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(
            f"{address!r} is not an IP address with a port. Use an address such as '0.0.0.0:50051' or '[::]:50051'."
        )
    return plain, int(port)


def _bound_socket(host: str, port: int) -> socket.socket:
    """Bind a socket that never listens: it reserves the port while no server uses it."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # grpcio binds with this as well, several times while one server replaces another.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


@dataclass(frozen=True, slots=True)
class Demand:
    """The requirements of a Listener for the server that accepts its connections."""

    tls: ServerTls | None
    listener: ServerListener | None = None
    """The Listener itself, if old connections must end when it changes."""


def demand_of(port: Port, listener: ServerListener, *, drains: bool) -> Demand:
    """Return the requirements of a Listener; raises `NotServableError`."""
    whole = listener if drains else None
    if not isinstance(port.credentials, XdsServerCredentials):
        return Demand(None, whole)
    default = () if listener.default_chain is None else (listener.default_chain,)
    wanted = {chain.tls for chain in (*listener.chains, *default)}
    if len(wanted) > 1:
        raise NotServableError(
            "The filter chains of the Listener have different TLS settings. Use the same settings in all of them."
        )
    return Demand(next(iter(wanted), None), whole)


def credentials_for(port: Port, tls: ServerTls | None, bootstrap: Bootstrap) -> grpc.ServerCredentials | None:
    """Return the credentials of the server for a port; raises `NotServableError`."""
    if not isinstance(port.credentials, XdsServerCredentials):
        return port.credentials
    if tls is None:
        return port.credentials.fallback
    files = _files(tls, bootstrap)
    port.gate.own_principal = own_principal(files.current.certificate)
    return _dynamic(port, files, requires_client=tls.require_client_certificate)


def _files(tls: ServerTls, bootstrap: Bootstrap) -> TlsFiles:
    # The names of providers were checked when the Listener was read.
    identity = bootstrap.certificate_providers[tls.identity.instance].identity
    roots = None if tls.roots is None else bootstrap.certificate_providers[tls.roots.instance].ca
    if identity is None:
        raise NotServableError(
            f"Certificate provider '{tls.identity.instance}' has no certificate. Set certificate_file and"
            " private_key_file in the bootstrap."
        )
    if tls.require_client_certificate and roots is None:
        raise NotServableError(
            "The certificate provider has no CA for client certificates. Set ca_certificate_file in the bootstrap."
        )
    try:
        ca = roots if tls.require_client_certificate and roots else ""
        files = TlsFiles.open(certificate=identity.certificate, key=identity.private_key, ca=ca, tell=_log.log)
    except TlsUnusableError as error:
        raise NotServableError(str(error)) from None
    if files is None:
        raise NotServableError(
            "The certificate provider has no path of a certificate. Set certificate_file in the bootstrap."
        )
    return files


def _dynamic(port: Port, files: TlsFiles, *, requires_client: bool) -> grpc.ServerCredentials:
    def configuration() -> grpc.ServerCertificateConfiguration:
        current = files.current
        return grpc.ssl_server_certificate_configuration(
            [(current.key.reveal(), current.certificate)], root_certificates=current.client_ca
        )

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        if files.renewed() is None:
            return None
        port.gate.own_principal = own_principal(files.current.certificate)
        return configuration()

    return grpc.dynamic_ssl_server_credentials(
        configuration(),
        renewed,  # type: ignore[arg-type]  # None says that nothing has changed
        require_client_authentication=requires_client,
    )
