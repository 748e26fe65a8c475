"""Which Secrets can be used for TLS, and what is wrong with the others."""

from functools import lru_cache
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from authplane.base.names import ObjectName
from authplane.base.secret import Secret as Hidden
from authplane.graph.model import Certificate
from authplane.resources.documents import Resources
from authplane.resources.kinds.core import Secret

Unusable: TypeAlias = str
"""Why a Secret cannot be used, as the tail of a sentence."""


def server_certificate(resources: Resources, name: ObjectName) -> Certificate | Unusable:
    """Return the certificate and key of a ``kubernetes.io/tls`` Secret, checked to belong together."""
    secret = resources.secrets.get(name)
    if secret is None:
        return _absent(resources, name)
    if secret.type != "kubernetes.io/tls":
        return 'Secret type is not "kubernetes.io/tls"'
    chain, key = secret.value("tls.crt"), secret.value("tls.key")
    if chain is None or not chain.reveal():
        return 'empty "tls.crt" key'
    if key is None or not key.reveal():
        return 'empty "tls.key" key'
    wrong = _pair_problem(chain.reveal(), key)
    return wrong or Certificate(name=name, chain=chain.reveal(), key=key)


def ca_bundle(resources: Resources, name: ObjectName) -> Hidden[bytes] | Unusable:
    """Return the certificates under ``ca.crt``, checked to be some."""
    secret = resources.secrets.get(name)
    if secret is None:
        return _absent(resources, name)
    if secret.type not in {"kubernetes.io/tls", "Opaque"}:
        return 'Secret type is not "kubernetes.io/tls" or "Opaque"'
    bundle = secret.value("ca.crt")
    if bundle is None or not bundle.reveal():
        return 'empty "ca.crt" key'
    wrong = _bundle_problem(bundle.reveal())
    return wrong or bundle


def _absent(resources: Resources, name: ObjectName) -> Unusable:
    broken = any(ref.kind == Secret.__name__ and ref.object_name == name for ref in resources.broken)
    return "Secret cannot be read" if broken else "Secret not found"


# Rebuilds are frequent and certificates change rarely: parsing one costs more than all else about its host.
@lru_cache(maxsize=4096)
def _pair_problem(chain: bytes, key: Hidden[bytes]) -> Unusable:
    try:
        leaf = x509.load_pem_x509_certificates(chain)[0]
    except ValueError as error:
        return f"invalid TLS certificate: {error}"
    try:
        private = load_pem_private_key(key.reveal(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "invalid TLS private key"  # the library's message might quote the key
    if not _accepted_by_envoy(leaf.public_key()):
        return "invalid TLS certificate: its key is neither RSA of at least 2048 bits nor ECDSA P-256, P-384 or P-521"
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if leaf.public_key().public_bytes(*spki) != private.public_key().public_bytes(*spki):
        return "the TLS private key does not belong to the certificate"
    return ""


def _accepted_by_envoy(key: CertificatePublicKeyTypes) -> bool:
    match key:
        case rsa.RSAPublicKey():
            return key.key_size >= 2048
        case ec.EllipticCurvePublicKey():
            return isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1)
        case _:
            return False


@lru_cache(maxsize=4096)
def _bundle_problem(bundle: bytes) -> Unusable:
    try:
        x509.load_pem_x509_certificates(bundle)
    except ValueError as error:
        return f"invalid CA certificate bundle: {error}"
    return ""
