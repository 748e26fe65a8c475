"""The folder of a development issuer: keys and certificates that are not for production."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from authplane.core.addresses import parse_ip_address
from authplane.core.secret import Secret
from authplane.core.values import dataclass
from authplane.devkit.identities.secret_documents import ca_secret, tls_secret
from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue

LIFETIME: Final = timedelta(days=90)
"""Lifetime of certificates. A CA lasts four times as long."""
WORKLOADS_CA: Final = "workloads-ca"
"""The Secret with the CA of workloads."""
_WORKLOADS: Final = "authplane dev workloads, not for production"
_NOTE: Final = """\
NOT FOR PRODUCTION

Created by `authplane dev`. Anyone who can read this folder can create tokens and
certificates for every server that trusts its CAs. Delete the folder to start again.
"""


class DevFolderError(Exception):
    """The folder is not usable. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class DevFolder:
    """The paths in the folder."""

    root: Path

    @property
    def ca(self) -> Path:
        """The CA that signs the issuer's TLS certificate, for ``caFile``."""
        return self.root / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The TLS certificate of the issuer."""
        return self.root / "issuer.crt"

    @property
    def key(self) -> Path:
        """Its private key."""
        return self.root / "issuer.key"

    @property
    def signing_key(self) -> Path:
        """The key that signs tokens."""
        return self.root / "signing.key"

    @property
    def url(self) -> Path:
        """The file with the issuer's last URL."""
        return self.root / "issuer.url"

    @property
    def workload_ca(self) -> Path:
        """The CA that signs workload certificates. It is a separate CA, so that a server can trust one of the two."""
        return self.root / "spiffe-ca.crt"

    @property
    def machine_ca(self) -> Path:
        """The CA that signs the certificates of machines, for connections between them."""
        return self.root / "tls-ca.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """A certificate, its key, and the CA that signed it."""

    certificate: Path
    key: Path
    ca: Path


def prepare_issuer(root: Path, host: str, now: datetime) -> DevFolder:
    """Create missing files and a certificate for ``host``; raises `DevFolderError` if a file is not writable."""
    folder = DevFolder(root)
    try:
        _begin(folder)
        if not folder.signing_key.exists():
            _write_private(folder.signing_key, _new_key())
        authority = _authority(folder.ca, "authplane dev issuer, not for production", now)
        names = ("localhost",) if _is_ip(host) else tuple(dict.fromkeys((host, "localhost")))
        ips = tuple(dict.fromkeys((*((host,) if _is_ip(host) else ()), "127.0.0.1", "::1")))
        shown = issue(authority, Leaf(name=host, dns=names, ips=ips), now=now, lifetime=LIFETIME)
        _write_private(folder.certificate, shown.certificate)
        _write_private(folder.key, shown.key.reveal())
    except OSError as error:
        raise _unwritable(root, error) from error
    return folder


def note_url(folder: DevFolder, url: str) -> None:
    """Store the issuer's URL for `authplane dev token`."""
    try:
        _write_private(folder.url, f"{url}\n".encode())
    except OSError as error:
        raise _unwritable(folder.root, error) from error


def read_url(folder: DevFolder) -> str:
    """Return the issuer's last URL; empty if it has never run."""
    try:
        return folder.url.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def read_signing_key(folder: DevFolder) -> Secret[bytes]:
    """Return the key that signs tokens, as PEM; raises `DevFolderError` if it does not exist."""
    try:
        return Secret(folder.signing_key.read_bytes())
    except FileNotFoundError as error:
        raise DevFolderError(
            f"{folder.root} has no development issuer. Pass the folder of the issuer that your gateway trusts, or"
            f" start a new issuer with 'authplane dev issuer --folder {folder.root}'."
        ) from error
    except OSError as error:
        raise DevFolderError(
            f"Cannot read {folder.signing_key}: {error.strerror}. Set --folder to a folder that you can read."
        ) from error


def write_workload(root: Path, spiffe_id: str, name: str, *, now: datetime, lifetime: timedelta) -> CertificateFiles:
    """Create a certificate for a workload, and the CA if it is missing; raises `DevFolderError`.

    It does not overwrite the files of another workload.
    """
    folder = DevFolder(root)
    made = CertificateFiles(certificate=root / f"{name}.crt", key=root / f"{name}.key", ca=folder.workload_ca)
    try:
        _begin(folder)
        if made.certificate.exists() and _ids(made.certificate) != [spiffe_id]:
            raise DevFolderError(f"{made.certificate} belongs to another SPIFFE ID. Set --name to another name.")
        authority = _authority(folder.workload_ca, _WORKLOADS, now)
        leaf = Leaf(name=name, usage=Usage.CLIENT, uris=(spiffe_id,))
        pair = issue(authority, leaf, now=now, lifetime=lifetime)
        _write_private(made.certificate, pair.certificate)
        _write_private(made.key, pair.key.reveal())
    except OSError as error:
        raise _unwritable(root, error) from error
    return made


def write_machines(root: Path, names: Sequence[str], *, now: datetime, lifetime: timedelta) -> list[CertificateFiles]:
    """Create certificates with these names for servers and clients, and the CA if it is missing.

    Files are replaced as a whole, the key first. Raises `DevFolderError`.
    """
    folder, made = DevFolder(root), list[CertificateFiles]()
    try:
        _begin(folder)
        authority = _authority(folder.machine_ca, "authplane dev tls, not for production", now)
        for name in names:
            dns, ips = ((), (name,)) if _is_ip(name) else ((name,), ())
            leaf = Leaf(name=name, usage=Usage.BOTH, dns=dns, ips=ips)
            pair = issue(authority, leaf, now=now, lifetime=lifetime)
            files = CertificateFiles(certificate=root / f"{name}.crt", key=root / f"{name}.key", ca=folder.machine_ca)
            if files.certificate.exists() and not _is_issued_by(authority, files.certificate):
                raise DevFolderError(
                    f"'authplane dev tls' did not create {files.certificate}. Set --folder to another folder."
                )
            _write_private(files.key, pair.key.reveal())
            _write_private(files.certificate, pair.certificate)
            made.append(files)
    except OSError as error:
        raise _unwritable(root, error) from error
    return made


def write_secrets(root: Path, target: Path, names: Sequence[str], *, now: datetime) -> None:
    """Write Secrets with the certificates of these names, and with the CA of workloads; raises `DevFolderError`."""
    try:
        workloads = _authority(DevFolder(root).workload_ca, _WORKLOADS, now)
        documents = [tls_secret(name, _read_pair(root / f"{name}.crt")) for name in names]
        documents.append(ca_secret(WORKLOADS_CA, workloads.certificate))
        text = "---\n".join(documents)
        _write_private(target, f"# Created by `authplane dev tls`. Not for production.\n{text}".encode())
    except OSError as error:
        raise _unwritable(root, error) from error


def _read_pair(certificate: Path) -> KeyPair:
    key = Secret(certificate.with_suffix(".key").read_bytes())
    return KeyPair(certificate=certificate.read_bytes(), key=key)


def _is_issued_by(authority: KeyPair, path: Path) -> bool:
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError:
        return False
    name = x509.load_pem_x509_certificate(authority.certificate).subject
    return found.issuer == name != found.subject


def _begin(folder: DevFolder) -> None:
    folder.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    note = folder.root / "NOT-FOR-PRODUCTION.txt"
    if not note.exists():
        _write_private(note, _NOTE.encode())


def _authority(path: Path, name: str, now: datetime) -> KeyPair:
    """Return the CA of a certificate file; creates a new one if it is missing or expires soon."""
    key = path.with_suffix(".key")
    if path.exists() and key.exists():
        try:
            known = _read_pair(path)
            ends = x509.load_pem_x509_certificate(known.certificate).not_valid_after_utc
        except ValueError as error:
            raise DevFolderError(f"{path} is not a certificate. Delete it to get a new one.") from error
        # The CA must outlive the certificates that it signs.
        if ends - now > LIFETIME:
            return known
    made = create_authority(name, now=now, lifetime=LIFETIME * 4)
    _write_private(key, made.key.reveal())
    _write_private(path, made.certificate)
    return made


def _ids(path: Path) -> list[str]:
    try:
        names = x509.load_pem_x509_certificate(path.read_bytes()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (ValueError, x509.ExtensionNotFound):
        return []
    return names.value.get_values_for_type(x509.UniformResourceIdentifier)


def _new_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _is_ip(host: str) -> bool:
    return parse_ip_address(host) is not None


def _unwritable(root: Path, error: OSError) -> DevFolderError:
    return DevFolderError(
        f"Cannot write {error.filename or root}: {error.strerror}. Set --folder to a folder that you can write to."
    )


def _write_private(path: Path, content: bytes) -> None:
    """Write a file atomically. Only its owner can read it."""
    draft = path.with_name(f".{path.name}.new")
    draft.touch(mode=0o600)
    draft.write_bytes(content)
    draft.replace(path)
