"""Certificates of clients, with usual and odd usages."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.differential.model import CERTIFICATES
from tests.support.certificates import authority

from authplane.core.secret import Secret
from authplane.devkit.identities.throwaway_certificates import KeyPair

_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH
_SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
_PURPOSES: Final[Mapping[str, tuple[x509.ObjectIdentifier, ...]]] = {
    "for servers": (_SERVER,),
    "for servers and clients": (_SERVER, _CLIENT),
    "for any use": (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,),
    "for code": (ExtendedKeyUsageOID.CODE_SIGNING,),
    "for no use in particular": (),
}
"""Extended key usages; an empty list leaves out the extension. All others are for clients."""
_USAGES: Final[Mapping[str, str]] = {
    "for agreeing on keys": "key_agreement",
    "for encipherment": "key_encipherment",
    "for no use in particular": "",
}
"""Key usages; an empty one leaves out the extension, which allows every use. All others are for signatures."""
_EVERY_USAGE: Final = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


@cache
def pair_of(name: str) -> KeyPair:
    """Return the certificate that a case calls so, and its key."""
    ca = x509.load_pem_x509_certificate(authority().certificate)
    signer = serialization.load_pem_private_key(authority().key.reveal(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    names = [x509.DNSName("client.example"), *map(x509.UniformResourceIdentifier, CERTIFICATES[name])]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")]))
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    usage = _USAGES.get(name, "digital_signature")
    if usage:
        builder = builder.add_extension(x509.KeyUsage(**{each: each == usage for each in _EVERY_USAGE}), critical=True)
    purposes = _PURPOSES.get(name, (_CLIENT,))
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return KeyPair(certificate=made, key=Secret(private))
