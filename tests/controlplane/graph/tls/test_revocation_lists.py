"""Certificate revocation lists in Secrets."""

from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from tests.support.certificates import authority, server

from authplane.controlplane.graph.tls.tls_secrets import revocation_lists
from authplane.core.names import ObjectName, Ref
from authplane.core.secret import Secret as Hidden
from authplane.resources.documents import Resources
from authplane.resources.kinds.core import Secret
from authplane.resources.kinds.meta import Meta

NAME = ObjectName("default", "crl")


@cache
def revoked(number: int) -> bytes:
    now = datetime.now(UTC)
    issuer = x509.load_pem_x509_certificate(authority().certificate).subject
    entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer)
        .last_update(now)
        .next_update(now + timedelta(days=1))
        .add_revoked_certificate(entry)
    )
    key = load_pem_private_key(authority().key.reveal(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def resources(text: bytes, *, key: str = "crl.pem", kind: str = "Opaque") -> Resources:
    secret = Secret(metadata=Meta(name=NAME.name), type=kind, string_data={key: Hidden(text)})
    return Resources(secrets={NAME: secret})


@pytest.mark.parametrize("kind", ["Opaque", "kubernetes.io/tls"])
def test_lists_are_read_and_everything_around_them_is_left_out(kind: str) -> None:
    text = b"by hand:\n" + revoked(1) + b"and\n" + revoked(2)
    assert revocation_lists(resources(text, kind=kind), NAME) == revoked(1) + revoked(2)


UNREADABLE = "invalid CRL: it has no readable certificate revocation lists"
BAD = {
    "no text": (resources(b""), 'empty "crl.pem" key'),
    "another key": (resources(revoked(1), key="ca.crt"), 'empty "crl.pem" key'),
    "another type": (
        resources(revoked(1), kind="kubernetes.io/basic-auth"),
        'secret type is not "kubernetes.io/tls" or "Opaque"',
    ),
    "garbage": (resources(b"garbage"), UNREADABLE),
    "a certificate": (resources(server("a.example").certificate), UNREADABLE),
    "a certificate beside a list": (resources(revoked(1) + server("a.example").certificate), UNREADABLE),
    "the second is cut off": (resources(revoked(1) + revoked(2)[:-40]), UNREADABLE),
    "broken inside": (resources(revoked(1)[:60] + b"AAAA" + revoked(1)[60:]), UNREADABLE),
    "no Secret": (Resources(), "Secret not found"),
    "a Secret that cannot be read": (
        Resources(broken=frozenset({Ref("Secret", NAME.namespace, NAME.name)})),
        "Secret cannot be read",
    ),
}


@pytest.mark.parametrize(("held", "why"), BAD.values(), ids=BAD.keys())
def test_lists_that_cannot_all_be_read_are_not_used(held: Resources, why: str) -> None:
    assert revocation_lists(held, NAME) == why
