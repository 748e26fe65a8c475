"""Certificates and channels with TLS."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import grpc
from tests.support import certificates

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, issue

SPIFFE = "spiffe://example.org/ns/shop/sa/web"


def spiffe_client() -> KeyPair:
    leaf = Leaf(name="web", usage=Usage.CLIENT, dns=("web.example",), uris=(SPIFFE,))
    return issue(certificates.authority(), leaf, now=datetime.now(UTC), lifetime=timedelta(days=1))


def server_credentials(pair: KeyPair, *, mutual: bool) -> grpc.ServerCredentials:
    roots = certificates.authority().certificate if mutual else None
    return grpc.ssl_server_credentials([(pair.key.reveal(), pair.certificate)], roots, mutual)


def client_credentials(pair: KeyPair | None) -> grpc.ChannelCredentials:
    roots = certificates.authority().certificate
    if pair is None:
        return grpc.ssl_channel_credentials(roots)
    return grpc.ssl_channel_credentials(roots, pair.key.reveal(), pair.certificate)


@contextmanager
def secured(port: int, pair: KeyPair | None) -> Iterator[grpc.Channel]:
    options = (("grpc.ssl_target_name_override", "shop.example"),)
    with grpc.secure_channel(f"127.0.0.1:{port}", client_credentials(pair), options) as channel:
        yield channel
