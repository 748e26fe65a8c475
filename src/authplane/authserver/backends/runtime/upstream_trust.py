"""The CA certificates that verify a service over TLS."""

import os
import ssl
from pathlib import Path

from authplane.policy.rules.backend_tls import SystemTrust


class NobodyTrustedError(Exception):
    """There are no certificates to verify a service with; the message says where they were looked for."""


def trusting(ca: bytes | SystemTrust) -> ssl.SSLContext:
    """Return a context that believes only who was certified by one of these, over TLS 1.2 at least."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(cadata=trusted_certificates(ca).decode("ascii"))
    return context


def trusted_certificates(ca: bytes | SystemTrust) -> bytes:
    """Return certificates in PEM form: those given, or those of the system and of the file in ``SSL_CERT_FILE``.

    Raises `NobodyTrustedError` if there are none, because gRPC would then trust the certificates that it bundles.
    """
    pem = _of_the_system() if isinstance(ca, SystemTrust) else ca
    if not pem:
        raise NobodyTrustedError(
            "No trusted CA certificates were found on this machine. Set SSL_CERT_FILE to a PEM file with CA"
            " certificates."
        )
    return pem


def _of_the_system() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for each in (ssl.get_default_verify_paths().openssl_cafile, os.environ.get("SSL_CERT_FILE", "")):
        if each and Path(each).is_file():
            context.load_verify_locations(each)
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in context.get_ca_certs(binary_form=True)).encode("ascii")
