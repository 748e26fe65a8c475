"""Certificates for SDS: those of hosts, and the one that upstreams are shown."""

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2

from authplane.graph.model import Certificate


def render_secret(certificate: Certificate) -> secret_pb2.Secret:
    """Render a certificate with its key: the one place where a key leaves its wrapper for the wire."""
    return secret_pb2.Secret(
        name=str(certificate.name),
        tls_certificate=common_pb2.TlsCertificate(
            certificate_chain=base_pb2.DataSource(inline_bytes=certificate.chain),
            private_key=base_pb2.DataSource(inline_bytes=certificate.key.reveal()),
        ),
    )
