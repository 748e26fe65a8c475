"""Reads the certificates of authorities."""

from functools import lru_cache

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding


# Each pass reads those of all policies, and there are several passes in a generation: 53 µs for one certificate, 0.1 µs
# for one that is known.
@lru_cache(maxsize=1024)
def rewrite_certificates(text: bytes) -> bytes:
    """Return the certificates in a text, written anew; nothing if anything is wrong with one."""
    try:
        found = x509.load_pem_x509_certificates(text)
        for each in found:
            each.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion):
        return b""
    return b"".join(each.public_bytes(Encoding.PEM) for each in found)
