"""`authplane bootstrap`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, assert_never

import click

from authplane.cli.shared.listen_options import serving
from authplane.cli.shared.output import fail, print_line
from authplane.cli.shared.parameters import Option
from authplane.controlplane.render.control_tls import ClientFiles, secret_files
from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import (
    AdminPages,
    ControlPlane,
    Tcp,
    UnixSocket,
    Where,
    ads_bootstrap,
)
from authplane.controlplane.serving.runtime.ads_peers import first_name, names_in
from authplane.controlplane.serving.runtime.control_socket import xds_address
from authplane.runtime.servers.listen import (
    Address,
    TcpAddress,
    TlsUnusableError,
    UnixAddress,
    parse_address,
    read_server_tls,
)
from authplane.xds.server.client_text import clean_node
from authplane.xds.server.node_identity import INSTANCE, NodeName


def bootstrap(
    address: Annotated[
        str,
        Option(
            help=(
                "Address of the control plane: host:port or unix:/path. Default: the default socket of the"
                " control plane."
            )
        ),
    ] = "",
    node: Annotated[
        str,
        Option(
            help="Node id of this Envoy. With TLS it is a name in the certificate, optionally followed by # and an"
            " instance name. Default: the first name in the certificate; without TLS, envoy."
        ),
    ] = "",
    admin: Annotated[str, Option(help="Address of Envoy's admin interface.")] = "127.0.0.1:9901",
    stats_address: Annotated[
        str,
        Option(
            help=(
                "Address of a listener for probes and Prometheus: host:port or :port. It serves /ready and"
                " /stats/prometheus without authentication, and no other page of the admin interface. Default: no"
                " such listener."
            )
        ),
    ] = "",
    delta: Annotated[bool, Option("--delta", help="Use delta xDS, which transfers changes only.")] = False,
    tls_ca_path: Annotated[str, Option(help="PEM file with the CA certificate of the control plane.")] = "",
    tls_cert_path: Annotated[str, Option(help="PEM file with the client certificate of this Envoy.")] = "",
    tls_key_path: Annotated[str, Option(help="PEM file with the private key of this Envoy.")] = "",
    follow_tls: Annotated[
        str,
        Option(
            metavar="DIR",
            help=(
                "Existing folder, in which the command creates two files that contain the paths of the TLS files. Envoy"
                " then reads the TLS files again after their renewal. Default: Envoy reads the TLS files once."
            ),
        ),
    ] = "",
    tls_server_name: Annotated[
        str, Option(help="Name in the control plane's certificate. Default: the host in --address.")
    ] = "",
    skip_file_checks: Annotated[
        bool, Option("--skip-file-checks", help="Do not check the TLS files. Use this if they are on another machine.")
    ] = False,
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
        names = None
        if any(files) and not skip_file_checks:
            names = _usable_names(ca=tls_ca_path, certificate=tls_cert_path, key=tls_key_path)
        id_ = node or _node(tls_cert_path)
        if names is not None:
            _require_name(id_, names, tls_cert_path)
        tls = ClientFiles(
            server_name=name,
            ca=tls_ca_path,
            certificate=tls_cert_path,
            key=tls_key_path,
            followed_from=follow_tls,
        )
        if follow_tls:
            _write_secrets(tls)
        control = ControlPlane(where=where, delta=delta, tls=tls if any(files) else None)
        pages = AdminPages(admin=_where(parse_address(admin)), stats=_stats(stats_address))
        message = ads_bootstrap(control, node=id_, pages=pages)
    click.echo(json_text(message), nl=False)


def _write_secrets(tls: ClientFiles) -> None:
    """Write the files that lead Envoy to the TLS files."""
    if not tls.certificate:
        fail("--follow-tls needs TLS files. Set --tls-ca-path, --tls-cert-path and --tls-key-path.", status=2)
    for name, message in secret_files(tls).items():
        path = Path(tls.followed_from) / name
        try:
            path.write_text(json_text(message), encoding="utf-8")
        except OSError as error:
            fail(f"Cannot write {path}: {error.strerror}. Set --follow-tls to a folder that you can write to.")


def _node(certificate: str) -> str:
    """Return the default node id: the first name in the certificate, which `control` expects."""
    if not certificate:
        return "envoy"
    name = first_name(certificate)
    if name is None:
        fail(f"Cannot read a DNS name or a URI from {certificate}. Set --node to a name in this certificate.", status=2)
    return name


def _usable_names(*, ca: str, certificate: str, key: str) -> Mapping[NodeName, frozenset[str]]:
    """Require files that Envoy can use, and return the names in the certificate."""
    try:
        read_server_tls(certificate=certificate, key=key, ca=ca)
        return names_in(Path(certificate).read_bytes())
    except TlsUnusableError as error:
        fail(f"{error} If the files are on another machine, run this command there, or add --skip-file-checks.")
    except ValueError as error:
        fail(f"Cannot read the names in {certificate}: {error}. Use another certificate.")


def _require_name(node: str, names: Mapping[NodeName, frozenset[str]], certificate: str) -> None:
    """Require a node id that the control plane accepts with this certificate."""
    name = node.partition(INSTANCE)[0]
    if name in names[NodeName.SAN]:
        return
    if name in names[NodeName.CN]:
        print_line(
            f"authplane: The node id is the common name in {certificate}, but not a DNS name or a URI."
            " Start 'authplane control' with --node-name cn.",
            to_stderr=True,
        )
        return
    has = ", ".join(sorted(map(clean_node, names[NodeName.SAN]))) or "none"
    fail(
        f"Node id {clean_node(node)!r} is not a name in {certificate}, so the control plane will reject"
        f" this Envoy. DNS names and URIs in the certificate: {has}. Set --node to one of them, or use"
        " another certificate."
    )


def _stats(text: str) -> Tcp | None:
    if not text:
        return None
    address = parse_address(text)
    if not isinstance(address, TcpAddress):
        fail(f'"{text}" is not an address that probes can reach. Use host:port or :port.', status=2)
    return Tcp(address.host or "0.0.0.0", address.port)  # noqa: S104 (as :port means for every command that listens)


def _where(address: Address) -> Where:
    match address:
        case TcpAddress(host=host, port=port):
            return Tcp(host or "127.0.0.1", port)
        case UnixAddress(path=path):
            return UnixSocket(path)
        case _:
            assert_never(address)
