"""The folder in which `authplane run` keeps what it makes: certificates and the quickstart's resources."""

from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Final

from cryptography import x509

from authplane.core.values import dataclass
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, create_authority, issue
from authplane.devkit.local.dev_folder import WorkloadFiles, prepare_issuer, write_workload

AUTHSERVER_NAME: Final = "authserver.authplane.local"
"""What the certificate of the authorization server says, and what the quickstart expects of it."""

WORKLOAD: Final = "spiffe://cluster.local/ns/default/sa/janitor"
"""Who comes with a certificate."""

_LIFETIME: Final = timedelta(days=90)
_RENEW_BEFORE: Final = timedelta(days=1)


class WorkspaceError(Exception):
    """The folder cannot be used; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where everything is."""

    root: Path

    @property
    def ca(self) -> Path:
        """The CA that signed the gateway's certificate: what curl needs."""
        return self.root / "ca.crt"

    @property
    def authserver_certificate(self) -> Path:
        """What the authorization server shows."""
        return self.root / "authserver.crt"

    @property
    def authserver_key(self) -> Path:
        """The key to it."""
        return self.root / "authserver.key"

    @property
    def dev(self) -> Path:
        """The development issuer, and certificates of workloads."""
        return self.root / "dev"

    @property
    def quickstart(self) -> Path:
        """The resources to play with; edits are kept."""
        return self.root / "quickstart"


def prepare_workspace(root: Path, now: datetime) -> Workspace:
    """Make what is missing or about to expire; raises `WorkspaceError` if the folder cannot be written."""
    workspace = Workspace(root)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace.quickstart.mkdir(exist_ok=True)
        _copy_quickstart(workspace.quickstart)
        if not _certificates_hold(workspace, now):
            _make_certificates(workspace, now)
    except OSError as error:
        raise WorkspaceError(f"cannot write {error.filename or root}: {error.strerror}") from error
    return workspace


def prepare_identities(workspace: Workspace, host: str, now: datetime) -> WorkloadFiles:
    """Make a development issuer on ``host`` and a workload, and let the quickstart trust them.

    Raises `DevFolderError` or `WorkspaceError` if that cannot be written.
    """
    issuer = prepare_issuer(workspace.dev, host, now)
    made = write_workload(workspace.dev, WORKLOAD, "janitor", now=now, lifetime=_LIFETIME)
    secrets = (("issuer-ca", issuer.ca), ("workloads-ca", made.ca))
    try:
        text = "---".join(_ca_secret(name, path.read_bytes()) for name, path in secrets)
        trusted = f"# Whom the quickstart trusts; made anew at each start.{text}"
        _write_private(workspace.quickstart / "identities.yaml", trusted.encode())
    except OSError as error:
        raise WorkspaceError(f"cannot write {error.filename}: {error.strerror}") from error
    return made


def _copy_quickstart(target: Path) -> None:
    for source in files("authplane.devkit.local").joinpath("sample").iterdir():
        path = target / source.name
        if not path.exists():
            path.write_bytes(source.read_bytes())


def _certificates_hold(workspace: Workspace, now: datetime) -> bool:
    secrets = workspace.quickstart / "certificates.yaml"
    if not all(path.is_file() for path in (workspace.ca, workspace.authserver_key, secrets)):
        return False
    try:
        certificate = x509.load_pem_x509_certificate(workspace.authserver_certificate.read_bytes())
    except (OSError, ValueError):
        return False
    return certificate.not_valid_after_utc - now > _RENEW_BEFORE


def _make_certificates(workspace: Workspace, now: datetime) -> None:
    authority = create_authority("authplane quickstart", now=now, lifetime=_LIFETIME)
    gateway = Leaf(name="localhost", dns=("localhost", "*.localhost"), ips=("127.0.0.1", "::1"))
    server = Leaf(name=AUTHSERVER_NAME, dns=(AUTHSERVER_NAME,))
    pairs = [issue(authority, leaf, now=now, lifetime=_LIFETIME) for leaf in (gateway, server)]
    _write_private(workspace.ca, authority.certificate)
    _write_private(workspace.authserver_certificate, pairs[1].certificate)
    _write_private(workspace.authserver_key, pairs[1].key.reveal())
    _write_private(workspace.quickstart / "certificates.yaml", _secrets(authority, pairs[0]).encode())


def _secrets(authority: KeyPair, gateway: KeyPair) -> str:
    return f"""\
# Throw-away certificates of this workspace. Delete the file to get new ones.
apiVersion: v1
kind: Secret
metadata:
  name: gateway
type: kubernetes.io/tls
stringData:
  tls.crt: |
{_indented(gateway.certificate)}
  tls.key: |
{_indented(gateway.key.reveal())}
---{_ca_secret("authserver-ca", authority.certificate)}"""


def _ca_secret(name: str, certificate: bytes) -> str:
    return f"""
apiVersion: v1
kind: Secret
metadata:
  name: {name}
type: Opaque
stringData:
  ca.crt: |
{_indented(certificate)}
"""


def _indented(pem: bytes) -> str:
    return "\n".join(f"    {line}" for line in pem.decode("ascii").splitlines())


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    draft = path.with_name(f".{path.name}.new")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
