"""Options and errors of all commands that listen."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import click

from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Option
from authplane.controlplane.serving.runtime.control_socket import NotLiveError
from authplane.runtime.envoy_process import EnvoyError
from authplane.runtime.kubernetes.kubeconfig import CredentialsError
from authplane.runtime.log import LogFormat
from authplane.runtime.servers.admin import AdminSettings
from authplane.runtime.servers.listen import AddressInvalidError, ListenError, parse_address
from authplane.sources.runtime.read_folder import FolderError

AddressOption: TypeAlias = Annotated[str, Option(help="Address to listen on: host:port, :port or unix:/path.")]
TlsCertOption: TypeAlias = Annotated[
    str, Option(help="PEM file with the certificate chain. If empty, the server uses plaintext.")
]
TlsKeyOption: TypeAlias = Annotated[str, Option(help="PEM file with the private key.")]
TlsCaOption: TypeAlias = Annotated[
    str, Option(help="PEM file with a CA certificate; clients must present a certificate of this CA.")
]
StateDirOption: TypeAlias = Annotated[
    Path | None,
    Option(
        help="Private folder for the last good versions of files. Default: $STATE_DIRECTORY, or"
        " authplane in $XDG_STATE_HOME.",
        show_default=False,
    ),
]
LoosenAfterOption: TypeAlias = Annotated[
    float,
    Option(
        min=0.0,
        help="Seconds that a file must stay unchanged before authplane applies a change that removes protection.",
    ),
]
MetricsOption: TypeAlias = Annotated[
    str, Option(help="Address of /healthz, /readyz and /metrics. If empty, authplane does not serve these pages.")
]
MetricsPublicOption: TypeAlias = Annotated[
    bool,
    Option(
        "--metrics-public", help="Allow other machines to read /healthz, /readyz and /metrics without authentication."
    ),
]
MetricsHostOption: TypeAlias = Annotated[
    list[str] | None,
    Option(
        help=(
            "Additional host name that requests for /healthz, /readyz and /metrics may use, besides localhost"
            " and the address; repeatable."
        )
    ),
]
LogFormatOption: TypeAlias = Annotated[
    LogFormat, Option(help="Log format: auto (text on a terminal, otherwise JSON), text or json.")
]


def admin_settings(address: str, names: Sequence[str] | None, *, public: bool) -> AdminSettings | None:
    """Return the settings of the admin pages; None disables them."""
    if not address:
        return None
    return AdminSettings(address=parse_address(address), public=public, names=tuple(names or ()))


@contextmanager
def serving() -> Generator[None]:
    """Exit with one error message if an address, a folder, a port or Envoy cannot be used."""
    try:
        yield
    except (AddressInvalidError, CredentialsError, FolderError) as error:
        fail(str(error), status=2)
    except (ListenError, EnvoyError, NotLiveError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
