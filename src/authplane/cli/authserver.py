"""`authplane authserver`."""

from typing import Annotated

import typer

from authplane.app.authserver import serve_testserver
from authplane.cli.listen import AddressOption, LogFormatOption, TlsCaOption, TlsCertOption, TlsKeyOption, serving
from authplane.io.authz import AuthzSettings
from authplane.io.listen import parse_address
from authplane.io.log import LogFormat, set_up_log
from authplane.io.tls_files import TlsFiles
from authplane.policy.testserver import Mode

authserver = typer.Typer(name="authserver", help="Answer the authorization checks of Envoy.", no_args_is_help=True)


@authserver.callback()
def _authserver() -> None: ...


@authserver.command("testserver")
def serve_test_backend(
    address: AddressOption = "127.0.0.1:9443",
    mode: Annotated[
        Mode, typer.Option(help="all authorizes every request; path only those whose path contains 'allow'.")
    ] = Mode.ALL,
    tls_cert_path: TlsCertOption = "",
    tls_key_path: TlsKeyOption = "",
    tls_ca_path: TlsCaOption = "",
    log_format: LogFormatOption = LogFormat.AUTO,
) -> None:
    """Authorize for trying things out: every request, or by path.

    Example: authplane authserver testserver --address :9443 --mode path --tls-cert-path tls.crt --tls-key-path tls.key
    """
    set_up_log(log_format)
    with serving():
        settings = AuthzSettings(
            address=parse_address(address),
            tls=TlsFiles.open(certificate=tls_cert_path, key=tls_key_path, ca=tls_ca_path),
        )
        serve_testserver(mode, settings)
