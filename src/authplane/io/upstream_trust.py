"""Whom to take for a service that is asked over TLS."""

import os
import ssl
from pathlib import Path

from authplane.policy.backend_tls import SystemTrust


def trusting(ca: bytes | SystemTrust) -> ssl.SSLContext:
    """Return a context that believes only who was certified by one of these; TLS 1.2 at least."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    pem = trusted_certificates(ca)
    if pem:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    return context


def trusted_certificates(ca: bytes | SystemTrust) -> bytes:
    """Return certificates in PEM form: those given, or those of the system and of the file in ``SSL_CERT_FILE``.

    Without any nobody is believed.
    """
    if not isinstance(ca, SystemTrust):
        return ca
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    paths = ssl.get_default_verify_paths()
    for each in (paths.openssl_cafile, os.environ.get("SSL_CERT_FILE", "")):
        if each and Path(each).is_file():
            context.load_verify_locations(each)
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in context.get_ca_certs(binary_form=True)).encode("ascii")
