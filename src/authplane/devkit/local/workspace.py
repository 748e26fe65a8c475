"""The state folder of `authplane run`: certificates and the quickstart's resources."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from cryptography import x509

from authplane.core.values import dataclass
from authplane.devkit.identities.secret_documents import ca_secret, tls_secret
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, create_authority, issue
from authplane.devkit.local.dev_folder import CertificateFiles, prepare_issuer, write_workload

AUTHSERVER_NAME: Final = "authserver.authplane.local"
"""The DNS name in the authorization service's certificate, which the quickstart requires."""

WORKLOAD: Final = "spiffe://cluster.local/ns/default/sa/janitor"
"""The SPIFFE id in the quickstart's client certificate."""

_LIFETIME: Final = timedelta(days=90)
_RENEW_BEFORE: Final = timedelta(days=1)
_GENERATED: Final = frozenset({"certificates.yaml", "identities.yaml"})
"""The files of the quickstart that this module writes."""


class WorkspaceError(Exception):
    """The folder is not usable. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The paths in the folder."""

    root: Path

    @property
    def ca(self) -> Path:
        """The CA that signed the gateway's certificate, for clients such as curl."""
        return self.root / "ca.crt"

    @property
    def authserver_certificate(self) -> Path:
        """The certificate of the authorization service."""
        return self.root / "authserver.crt"

    @property
    def authserver_key(self) -> Path:
        """Its private key."""
        return self.root / "authserver.key"

    @property
    def dev(self) -> Path:
        """The folder of the development issuer and of workload certificates."""
        return self.root / "dev"

    @property
    def quickstart(self) -> Path:
        """The resources of the quickstart. Edits are kept until `reset_quickstart`."""
        return self.root / "quickstart"


def prepare_workspace(root: Path, now: datetime) -> Workspace:
    """Create missing files and renew certificates; raises `WorkspaceError` if the folder is not writable."""
    workspace = Workspace(root)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace.quickstart.mkdir(exist_ok=True)
        _copy_quickstart(workspace.quickstart)
        if not _certificates_are_valid(workspace, now):
            _make_certificates(workspace, now)
    except OSError as error:
        raise _unwritable(error, root) from error
    return workspace


def reset_quickstart(root: Path, now: datetime) -> Path | None:
    """Remove the quickstart's resources, so that `prepare_workspace` creates them again.

    Moves files that the user edited or added to a backup folder and returns its path; None if there are none. Raises
    `WorkspaceError` if the folder is not writable.
    """
    workspace = Workspace(root)
    backup = root / f"quickstart-backup-{now:%Y%m%d-%H%M%S}"
    ours = {source.name: source.read_bytes() for source in _samples()}
    try:
        for path in sorted(workspace.quickstart.glob("*")):
            if path.name in _GENERATED or (path.is_file() and path.read_bytes() == ours.get(path.name)):
                path.unlink()
            else:
                backup.mkdir(mode=0o700, exist_ok=True)
                path.rename(backup / path.name)
    except OSError as error:
        raise _unwritable(error, root) from error
    return backup if backup.exists() else None


def prepare_identities(workspace: Workspace, host: str, now: datetime) -> CertificateFiles:
    """Create a development issuer for ``host`` and a client certificate, and their CAs as Secrets of the quickstart.

    Raises `DevFolderError` or `WorkspaceError` if a file is not writable.
    """
    issuer = prepare_issuer(workspace.dev, host, now)
    made = write_workload(workspace.dev, WORKLOAD, "janitor", now=now, lifetime=_LIFETIME)
    secrets = (("issuer-ca", issuer.ca), ("workloads-ca", made.ca))
    try:
        text = "---\n".join(ca_secret(name, path.read_bytes()) for name, path in secrets)
        trusted = f"# The CAs that the quickstart trusts. `authplane run` writes this file at each start.\n{text}"
        _write_private(workspace.quickstart / "identities.yaml", trusted.encode())
    except OSError as error:
        raise _unwritable(error, workspace.root) from error
    return made


def _copy_quickstart(target: Path) -> None:
    for source in _samples():
        path = target / source.name
        if not path.exists():
            path.write_bytes(source.read_bytes())


def _samples() -> Iterator[Traversable]:
    return files("authplane.devkit.local").joinpath("sample").iterdir()


def _unwritable(error: OSError, root: Path) -> WorkspaceError:
    return WorkspaceError(
        f"Cannot write {error.filename or root}: {error.strerror}. Set --state-dir to a folder that you can write to."
    )


def _certificates_are_valid(workspace: Workspace, now: datetime) -> bool:
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
    documents = tls_secret("gateway", gateway), ca_secret("authserver-ca", authority.certificate)
    text = "---\n".join(documents)
    return f"# Throw-away certificates. Delete this file to get new ones.\n{text}"


def _write_private(path: Path, content: bytes) -> None:
    """Write a file atomically. Only its owner can read it."""
    draft = path.with_name(f".{path.name}.new")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
