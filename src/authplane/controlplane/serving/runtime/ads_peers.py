"""The names in a client's certificate, which grpcio has verified."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, assert_never

import grpc
from cryptography import x509
from cryptography.x509.oid import NameOID

from authplane.xds.server.node_identity import NodeName

_CERTIFICATE: Final = "x509_pem_cert"


def peer_names(context: grpc.aio.ServicerContext[bytes, bytes], which: NodeName) -> frozenset[str]:
    """Return the names of one sort; none of a client without a certificate, or with one that cannot be read."""
    shown = context.auth_context().get(_CERTIFICATE, ())
    for pem in shown:
        try:
            return _names(x509.load_pem_x509_certificate(pem), which)
        except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
            return frozenset()
    return frozenset()


def names_in(content: bytes) -> Mapping[NodeName, frozenset[str]]:
    """Return the names of each sort in a certificate, PEM; raises `ValueError` if they cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(content)
        return {which: _names(certificate, which) for which in NodeName}
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise ValueError(str(error)) from error


def first_name(path: str) -> str | None:
    """Return the first DNS name or else URI in the certificate of a PEM file; None if there is none."""
    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None
    uris = found.get_values_for_type(x509.UniformResourceIdentifier)
    return next(iter((*found.get_values_for_type(x509.DNSName), *uris)), None)


def _names(certificate: x509.Certificate, which: NodeName) -> frozenset[str]:
    match which:
        case NodeName.SAN:
            try:
                found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            except x509.ExtensionNotFound:
                return frozenset()
            uris = found.get_values_for_type(x509.UniformResourceIdentifier)
            return frozenset((*found.get_values_for_type(x509.DNSName), *uris))
        case NodeName.CN:
            common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            # A subject may have several: then it is unclear which one is meant.
            return frozenset(str(each.value) for each in common) if len(common) == 1 else frozenset()
        case _:
            assert_never(which)
