"""Which Secrets can be used for TLS, and what is wrong with the others."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from authplane.controlplane.graph.model.port_model import Certificate
from authplane.core.names import ObjectName, Ref
from authplane.core.secret import Secret as Hidden
from authplane.resources.documents import Resources

Unusable: TypeAlias = str
"""Why a Secret cannot be used, as the tail of a sentence."""

_PEM_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


def secret_name(written: str, namespace: str) -> ObjectName:
    """Read ``name`` or ``namespace/name``."""
    other, slash, name = written.partition("/")
    return ObjectName(other, name) if slash else ObjectName(namespace, written)


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
    read = _read_pair(chain, key)
    return read if isinstance(read, Unusable) else Certificate(name=name, chain=read.pem, key=key)


def ca_bundle(resources: Resources, name: ObjectName) -> bytes | Unusable:
    """Return the certificates under ``ca.crt``, and nothing else that may stand there."""
    bundle = _bundle(resources, name, "ca.crt")
    if isinstance(bundle, Unusable):
        return bundle
    read = _read_certificates(bundle)
    return "invalid CA certificate bundle: it holds no readable certificates" if read is None else read.pem


def revocation_lists(resources: Resources, name: ObjectName) -> bytes | Unusable:
    """Return the certificate revocation lists under ``crl.pem``, and nothing else that may stand there."""
    bundle = _bundle(resources, name, "crl.pem")
    if isinstance(bundle, Unusable):
        return bundle
    return _read_lists(bundle) or "invalid CRL: it holds no readable certificate revocation lists"


def _bundle(resources: Resources, name: ObjectName, key: str) -> Hidden[bytes] | Unusable:
    secret = resources.secrets.get(name)
    if secret is None:
        return _absent(resources, name)
    if secret.type not in {"kubernetes.io/tls", "Opaque"}:
        return 'secret type is not "kubernetes.io/tls" or "Opaque"'
    bundle = secret.value(key)
    return bundle if bundle is not None and bundle.reveal() else f'empty "{key}" key'


def _absent(resources: Resources, name: ObjectName) -> Unusable:
    broken = Ref("Secret", name.namespace, name.name) in resources.broken
    return "Secret cannot be read" if broken else "Secret not found"


@dataclass(frozen=True, slots=True)
class _Read:
    """Certificates, written anew: a private key that stood between them is not passed on."""

    pem: bytes
    leaf: x509.Certificate


# Rebuilds are frequent and certificates change rarely: parsing one takes 83 to 120 µs, to find it here 0.5 µs, and
# Gateways read theirs in each build.
@lru_cache(maxsize=4096)
def _read_pair(chain: Hidden[bytes], key: Hidden[bytes]) -> _Read | Unusable:
    read = _read_certificates(chain)
    if read is None:
        return "invalid TLS certificate: it cannot be read"
    try:
        private = load_pem_private_key(key.reveal(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return "invalid TLS private key"  # the library's message might quote the key
    public = read.leaf.public_key()
    if not _accepted_by_envoy(public):
        return "invalid TLS certificate: its key is neither RSA of at least 2048 bits nor ECDSA P-256, P-384 or P-521"
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*spki) != private.public_key().public_bytes(*spki):
        return "the TLS private key does not belong to the certificate"
    return _extension_problem(read.leaf) or read


@lru_cache(maxsize=4096)
def _read_certificates(bundle: Hidden[bytes]) -> _Read | None:
    """Read certificates, every part of them that is looked at later; None if anything is wrong with one."""
    try:
        certificates = x509.load_pem_x509_certificates(bundle.reveal())
        for certificate in certificates:
            certificate.public_key()
            _ = certificate.extensions
        pem = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension):
        return None
    return _Read(pem, certificates[0])


def _read_lists(bundle: Hidden[bytes]) -> bytes:
    """Read revocation lists and write them anew; nothing if anything is wrong with one."""
    written = _PEM_LIST.findall(bundle.reveal())
    if len(written) != bundle.reveal().count(b"-----BEGIN "):
        return b""  # one that was cut off, or something else: what it revokes would not be
    try:
        lists = [x509.load_pem_x509_crl(text) for text in written]
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return b""
    return b"".join(each.public_bytes(Encoding.PEM) for each in lists)


def _accepted_by_envoy(key: CertificatePublicKeyTypes) -> bool:
    match key:
        case rsa.RSAPublicKey():
            return key.key_size >= 2048
        case ec.EllipticCurvePublicKey():
            return isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1 | ec.SECP521R1)
        case _:
            return False


def _extension_problem(leaf: x509.Certificate) -> Unusable:
    """Name an extension with which Envoy refuses a server's certificate."""
    try:
        if not leaf.extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature:
            return "invalid TLS certificate: its key usage does not include digital signatures"
    except x509.ExtensionNotFound:
        pass
    try:
        leaf.extensions.get_extension_for_class(x509.TLSFeature)
    except x509.ExtensionNotFound:
        return ""
    return "invalid TLS certificate: it demands OCSP stapling, which is not supported"
