"""Options and errors that every command that listens shares."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import click

from authplane.cli.shared.output import fail
from authplane.cli.shared.parameters import Option
from authplane.controlplane.serving.runtime.control_socket import NotLiveError
from authplane.runtime.envoy_process import EnvoyError
from authplane.runtime.log import LogFormat
from authplane.runtime.servers.admin import AdminSettings
from authplane.runtime.servers.listen import AddressInvalidError, ListenError, parse_address
from authplane.sources.runtime.read_folder import FolderError

AddressOption: TypeAlias = Annotated[str, Option(help="host:port, :port or unix:/path.")]
TlsCertOption: TypeAlias = Annotated[str, Option(help="PEM file with the certificate chain; empty is plaintext.")]
TlsKeyOption: TypeAlias = Annotated[str, Option(help="PEM file with the private key.")]
TlsCaOption: TypeAlias = Annotated[
    str, Option(help="PEM file with a CA: only clients with a certificate of it are served.")
]
StateDirOption: TypeAlias = Annotated[
    Path | None,
    Option(
        help="Private folder for the last good versions of files; the default is $STATE_DIRECTORY, or"
        " authplane in $XDG_STATE_HOME.",
        show_default=False,
    ),
]
LoosenAfterOption: TypeAlias = Annotated[
    float,
    Option(
        min=0.0,
        help="Seconds that a file must be unchanged before a change that takes protection away takes effect.",
    ),
]
MetricsOption: TypeAlias = Annotated[str, Option(help="Address of /healthz, /readyz and /metrics; empty serves none.")]
MetricsPublicOption: TypeAlias = Annotated[
    bool, Option("--metrics-public", help="Allow other machines to read these pages without authentication.")
]
MetricsHostOption: TypeAlias = Annotated[
    list[str] | None,
    Option(help="Host name that requests for these pages may use, besides localhost and the address; repeatable."),
]
LogFormatOption: TypeAlias = Annotated[LogFormat, Option(help="auto is text on a terminal, JSON elsewhere.")]


def admin_settings(address: str, names: Sequence[str] | None, *, public: bool) -> AdminSettings | None:
    """Return where admin pages are served; None is nowhere."""
    if not address:
        return None
    return AdminSettings(address=parse_address(address), public=public, names=tuple(names or ()))


@contextmanager
def serving() -> Generator[None]:
    """Turn what can go wrong with a server's surroundings into one sentence."""
    try:
        yield
    except (AddressInvalidError, FolderError) as error:
        fail(str(error), status=2)
    except (ListenError, EnvoyError, NotLiveError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
