"""Certificates as workloads show them, and as they should not."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from urllib.parse import quote

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NOW: Final = datetime(2027, 1, 15, 8, tzinfo=UTC)
AGENT: Final = "spiffe://cluster.local/ns/default/sa/agent"

_USAGES: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


@cache
def key(number: int) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])


def uri(text: str = AGENT) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


def usage(*names: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{name: name in names for name in _USAGES})


def purposes(*oids: x509.ObjectIdentifier) -> x509.ExtendedKeyUsage:
    return x509.ExtendedKeyUsage(oids)


CLIENT: Final[tuple[x509.ExtensionType, ...]] = (
    x509.BasicConstraints(ca=False, path_length=None),
    usage("digital_signature"),
    purposes(ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
)


def certificate(
    *names: x509.GeneralName,
    extensions: Sequence[x509.ExtensionType] = CLIENT,
    subject: str = "workload",
    issuer: str = "authority",
    signer: int = 1,
) -> x509.Certificate:
    """Make a certificate that holds from an hour before `NOW` to an hour after."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key(0).public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(hours=1))
        .not_valid_after(NOW + timedelta(hours=1))
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(key(signer), hashes.SHA256())


def shown(made: x509.Certificate) -> str:
    """Write a certificate as Envoy does in ``source.certificate``."""
    return quote(made.public_bytes(Encoding.PEM), safe="")
