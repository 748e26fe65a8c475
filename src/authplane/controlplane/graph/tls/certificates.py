"""Reads certificates, keys and revocation lists, and writes them anew."""

import re
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from authplane.core.secret import Secret as Hidden
from authplane.core.values import dataclass

_PEM_LIST: Final = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Read:
    """Certificates, serialized again: a private key between them is not passed on."""

    pem: bytes
    leaf: x509.Certificate


# Rebuilds are frequent and certificates change rarely: parsing one takes 83 to 120 µs, to find it here 0.5 µs, and
# Gateways read theirs in each build.
@lru_cache(maxsize=4096)
def read_pair(chain: Hidden[bytes], key: Hidden[bytes]) -> Read | str:
    """Read a certificate with its key; or say why the two cannot be used, as the tail of a sentence."""
    read = read_certificates(chain)
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
def read_certificates(bundle: Hidden[bytes]) -> Read | None:
    """Read certificates, with every part that is used later; None if any of them is invalid."""
    try:
        certificates = x509.load_pem_x509_certificates(bundle.reveal())
        for certificate in certificates:
            certificate.public_key()
            _ = certificate.extensions
        pem = b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension):
        return None
    return Read(pem, certificates[0])


def read_lists(bundle: Hidden[bytes]) -> bytes:
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


def _extension_problem(leaf: x509.Certificate) -> str:
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
    return "invalid TLS certificate: it requires OCSP stapling, which is not supported"
