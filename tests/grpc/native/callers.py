"""Certificates that clients of a gRPC server show: of workloads, and of others that a CA has signed."""

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509.oid import NameOID
from tests.support import certificates
from tests.support.issuers.svids import CLIENT, uri, usage
from tests.support.policies.names import AGENT, OTHER

from authplane.devkit.identities.throwaway_certificates import KeyPair, _pair

_LEAF: Final = x509.BasicConstraints(ca=False, path_length=None)
_NAMES: Final[dict[str, tuple[x509.GeneralName, ...]]] = {
    "agent": (uri(AGENT),),
    "other": (uri(OTHER),),
    "both": (uri(AGENT), uri(OTHER)),
    "twice": (uri(AGENT), uri(AGENT)),
    "host": (x509.DNSName("agent.example"),),
    "domain": (uri("spiffe://cluster.local"),),
    "nobody": (),
    "authority": (uri(AGENT),),
    "signer": (uri(AGENT),),
}
_EXTENSIONS: Final[dict[str, tuple[x509.ExtensionType, ...]]] = {
    "authority": (x509.BasicConstraints(ca=True, path_length=None), usage("digital_signature", "key_cert_sign")),
    "signer": (_LEAF, usage("digital_signature", "crl_sign")),
}


@cache
def pair_of(caller: str) -> KeyPair:
    """Return what one of them shows."""
    now, root = datetime.now(UTC), certificates.authority()
    key = ec.generate_private_key(ec.SECP256R1())
    signer = load_pem_private_key(root.key.reveal(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, AGENT[:64])]))
        .issuer_name(x509.load_pem_x509_certificate(root.certificate).subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
    )
    for extension in _EXTENSIONS.get(caller, CLIENT):
        builder = builder.add_extension(extension, critical=True)
    if _NAMES[caller]:
        builder = builder.add_extension(x509.SubjectAlternativeName(_NAMES[caller]), critical=False)
    return _pair(builder.sign(signer, hashes.SHA256()), key)
