"""Throw-away certificates: a CA and what it signs, for trying things out and for tests."""

from datetime import datetime, timedelta
from enum import Enum
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from authplane.core.secret import Secret
from authplane.core.values import dataclass

_SKEW: Final = timedelta(minutes=5)
"""Certificates start a little before they are made: clocks differ."""


class Usage(Enum):
    """What a leaf may be shown as."""

    SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)
    CLIENT = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: Secret[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """What a certificate says of its owner."""

    name: str
    usage: Usage = Usage.SERVER
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


def create_authority(name: str, *, now: datetime, lifetime: timedelta) -> KeyPair:
    """Make a CA that can sign leaves, and nothing below them."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: KeyPair, leaf: Leaf, *, now: datetime, lifetime: timedelta) -> KeyPair:
    """Make a key and let ``authority`` sign its certificate."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key.reveal(), password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the key of a development CA is an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_subject(leaf.name), issuer.subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(leaf.usage.value), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    names = _alternative_names(leaf)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(signer, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _alternative_names(leaf: Leaf) -> list[x509.GeneralName]:
    return [
        *(x509.DNSName(name) for name in leaf.dns),
        *(x509.IPAddress(ip_address(ip)) for ip in leaf.ips),
        *(x509.UniformResourceIdentifier(uri) for uri in leaf.uris),
    ]


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate=certificate.public_bytes(serialization.Encoding.PEM), key=Secret(private))
