"""Certificates for SDS: those of hosts, and the one that upstreams are shown."""

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2

from authplane.controlplane.graph.model.port_model import Certificate
from authplane.controlplane.graph.model.upstreams import CertificateFiles


def render_secret(certificate: Certificate | CertificateFiles) -> secret_pb2.Secret:
    """Render a certificate with its key: the one place where a key leaves its wrapper for the wire."""
    if isinstance(certificate, CertificateFiles):
        return _in_files(certificate)
    return secret_pb2.Secret(
        name=str(certificate.name),
        tls_certificate=common_pb2.TlsCertificate(
            certificate_chain=base_pb2.DataSource(inline_bytes=certificate.chain),
            private_key=base_pb2.DataSource(inline_bytes=certificate.key.reveal()),
        ),
    )


def _in_files(certificate: CertificateFiles) -> secret_pb2.Secret:
    """Render paths. Envoy reads them again when a file is moved into the folder of the certificate or of the key."""
    return secret_pb2.Secret(
        name=str(certificate.name),
        tls_certificate=common_pb2.TlsCertificate(
            certificate_chain=base_pb2.DataSource(filename=certificate.chain),
            private_key=base_pb2.DataSource(filename=certificate.key),
        ),
    )
