"""`authplane bootstrap`."""

from typing import Annotated, assert_never

import click

from authplane.cli.shared.listen_options import serving
from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Option
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import (
    ClientFiles,
    ControlPlane,
    Tcp,
    UnixSocket,
    Where,
    ads_bootstrap,
)
from authplane.controlplane.serving.runtime.ads_peers import first_name
from authplane.controlplane.serving.runtime.control_socket import xds_address
from authplane.runtime.servers.listen import Address, TcpAddress, UnixAddress, parse_address


def bootstrap(
    address: Annotated[
        str, Option(help="Address of the control plane: host:port or unix:/path. Default: its default socket.")
    ] = "",
    node: Annotated[
        str,
        Option(
            help="Node id of this Envoy. With TLS it is a name in the certificate, optionally followed by # and an"
            " instance name. Default: the first name in the certificate; without TLS, envoy."
        ),
    ] = "",
    admin: Annotated[str, Option(help="Address of Envoy's admin interface.")] = "127.0.0.1:9901",
    delta: Annotated[bool, Option("--delta", help="Use delta xDS, which transfers changes only.")] = False,
    tls_ca_path: Annotated[str, Option(help="PEM file with the CA certificate of the control plane.")] = "",
    tls_cert_path: Annotated[str, Option(help="PEM file with the client certificate of this Envoy.")] = "",
    tls_key_path: Annotated[str, Option(help="PEM file with the private key of this Envoy.")] = "",
    tls_server_name: Annotated[
        str, Option(help="Name in the control plane's certificate. Default: the host of its address.")
    ] = "",
) -> None:
    """Print an Envoy bootstrap configuration that connects to a control plane.

    Example: authplane bootstrap > envoy.json && envoy -c envoy.json
    """
    files = (tls_ca_path, tls_cert_path, tls_key_path)
    if any(files) and not all(files):
        fail(
            "TLS to the control plane needs a CA, a certificate and a key. Set --tls-ca-path, --tls-cert-path and"
            " --tls-key-path.",
            status=2,
        )
    with serving():
        where = _where(parse_address(address) if address else xds_address())
        name = tls_server_name or (where.host if isinstance(where, Tcp) else "")
        if any(files) and not name:
            fail(
                "TLS over a unix socket needs a server name. Set --tls-server-name to a name in the control plane's"
                " certificate.",
                status=2,
            )
        tls = ClientFiles(server_name=name, ca=tls_ca_path, certificate=tls_cert_path, key=tls_key_path)
        control = ControlPlane(where=where, delta=delta, tls=tls if any(files) else None)
        message = ads_bootstrap(control, node=node or _node(tls_cert_path), admin=_where(parse_address(admin)))
    click.echo(json_text(message), nl=False)


def _node(certificate: str) -> str:
    """Return the default node id: the first name in the certificate, which `control` expects."""
    if not certificate:
        return "envoy"
    name = first_name(certificate)
    if name is None:
        fail(f"Cannot read a DNS name or a URI from {certificate}. Set --node to a name in this certificate.", status=2)
    return name


def _where(address: Address) -> Where:
    match address:
        case TcpAddress(host=host, port=port):
            return Tcp(host or "127.0.0.1", port)
        case UnixAddress(path=path):
            return UnixSocket(path)
        case _:
            assert_never(address)
