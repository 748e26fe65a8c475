"""Throw-away certificates, as OpenSSL and cryptography see them."""

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from authplane.devkit.identities.throwaway_certificates import KeyPair, Leaf, Usage, create_authority, issue

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY: Final = timedelta(days=1)


def test_a_leaf_says_what_was_asked_and_its_authority_signed_it() -> None:
    authority = create_authority("test CA", now=NOW, lifetime=DAY)
    leaf = Leaf(
        name="web", usage=Usage.CLIENT, dns=("a.test", "*.b.test"), ips=("127.0.0.1", "::1"), uris=("spiffe://x/y",)
    )
    made = x509.load_pem_x509_certificate(issue(authority, leaf, now=NOW, lifetime=DAY).certificate)
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names == x509.SubjectAlternativeName(
        [
            x509.DNSName("a.test"),
            x509.DNSName("*.b.test"),
            x509.IPAddress(ip_address("127.0.0.1")),
            x509.IPAddress(ip_address("::1")),
            x509.UniformResourceIdentifier("spiffe://x/y"),
        ]
    )
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert usage == x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    assert (made.not_valid_before_utc, made.not_valid_after_utc) == (NOW - timedelta(minutes=5), NOW + DAY)
    key = made.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"


def test_a_private_key_is_not_shown() -> None:
    assert "PRIVATE" not in repr(create_authority("test CA", now=NOW, lifetime=DAY))


def _client(authority: KeyPair) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate.decode())


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Let two contexts shake hands in memory; raises what the client raises."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(down, up, server_hostname=name)
    there = server.wrap_bio(up, down, server_side=True)
    open_ends = [here, there]
    for _ in range(10):
        for end in tuple(open_ends):
            try:
                end.do_handshake()
                open_ends.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not open_ends:
            return
    raise AssertionError("the handshake does not end")


def test_openssl_accepts_the_chain_for_the_names_in_it_only(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = create_authority("test CA", now=now, lifetime=DAY)
    pair = issue(authority, Leaf(name="web", dns=("a.test",)), now=now, lifetime=DAY)
    (tmp_path / "cert.pem").write_bytes(pair.certificate)
    (tmp_path / "key.pem").write_bytes(pair.key.reveal())
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    _handshake(_client(authority), server, "a.test")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(_client(authority), server, "b.test")
    other = create_authority("test CA", now=now, lifetime=DAY)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(_client(other), server, "a.test")
