from datetime import timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import quote

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st
from tests.support.issuers.svids import AGENT, CLIENT, NOW, certificate, key, named, purposes, shown, uri, usage

from authplane.policy.identity.workload_identity.certificate_identity import LONGEST, PeerCertificates, parse_svid
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity, Why
from authplane.policy.identity.workload_identity.spiffe import SpiffeId

AT: Final = NOW.timestamp()
DOMAINS: Final = frozenset({"cluster.local"})
ID: Final = SpiffeId("cluster.local", "/ns/default/sa/agent")


def identify(made: x509.Certificate | str, principal: str = AGENT, now: float = AT) -> SpiffeId | Why:
    text = made if isinstance(made, str) else shown(made)
    found = PeerCertificates().identify(principal, text, DOMAINS, now)
    return found.why if isinstance(found, NoIdentity) else found


class Case(NamedTuple):
    made: x509.Certificate
    want: SpiffeId | Why
    principal: str = AGENT


CASES: Final = {
    "one URI name": Case(certificate(uri()), ID),
    "other names beside it": Case(certificate(x509.DNSName("a.example"), uri(), x509.IPAddress(ip_address("::1"))), ID),
    "no purposes": Case(certificate(uri(), extensions=()), ID),
    "any purpose": Case(certificate(uri(), extensions=[purposes(ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)]), ID),
    "two URI names": Case(certificate(uri(), uri("spiffe://cluster.local/b")), Why.NOT_ONE_URI),
    "the same URI name twice": Case(certificate(uri(), uri()), Why.NOT_ONE_URI),
    "a URI name that is no SPIFFE id beside it": Case(certificate(uri(), uri("https://a.example")), Why.NOT_ONE_URI),
    "no names": Case(certificate(), Why.NOT_ONE_URI),
    "another URI": Case(certificate(uri("https://a.example")), Why.NOT_SPIFFE, "https://a.example"),
    "a trust domain": Case(certificate(uri("spiffe://cluster.local")), Why.NO_WORKLOAD, "spiffe://cluster.local"),
    "an id in capitals": Case(certificate(uri("SPIFFE://cluster.local/a")), Why.NOT_SPIFFE),
    "another trust domain": Case(
        certificate(uri("spiffe://cluster.local.evil/a")), Why.TRUST_DOMAIN, "spiffe://cluster.local.evil/a"
    ),
    "an authority": Case(
        certificate(uri(), extensions=[x509.BasicConstraints(ca=True, path_length=None)]), Why.AUTHORITY
    ),
    "who signs certificates": Case(
        certificate(uri(), extensions=[usage("digital_signature", "key_cert_sign")]), Why.AUTHORITY
    ),
    "who signs revocations": Case(
        certificate(uri(), extensions=[usage("digital_signature", "crl_sign")]), Why.AUTHORITY
    ),
    "who signs nothing": Case(certificate(uri(), extensions=[usage("key_agreement")]), Why.USAGE),
    "a server": Case(certificate(uri(), extensions=[purposes(ExtendedKeyUsageOID.SERVER_AUTH)]), Why.USAGE),
    "mail": Case(certificate(uri(), extensions=[purposes(ExtendedKeyUsageOID.EMAIL_PROTECTION)]), Why.USAGE),
    "signed by itself": Case(certificate(uri(), issuer="workload", signer=0), Why.SELF_SIGNED),
    "signed by a namesake": Case(certificate(uri(), issuer="workload", signer=1), ID),
    "no subject": Case(certificate(uri(), subject=""), ID),
    "another principal": Case(certificate(uri()), Why.PRINCIPAL, "spiffe://cluster.local/ns/default/sa/admin"),
    "no principal": Case(certificate(uri()), Why.PRINCIPAL, ""),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_certificate_proves(case: Case) -> None:
    assert identify(case.made, case.principal) == case.want


@pytest.mark.requirement("S04")
def test_only_a_uri_name_makes_an_identity() -> None:
    spoofed = "spiffe://cluster.local/admin"
    dns = certificate(x509.DNSName(spoofed))
    subject = certificate(subject=spoofed)
    mail = certificate(x509.RFC822Name("spiffe://cluster.local/admin"))
    directory = certificate(x509.DirectoryName(named(spoofed)))
    assert [identify(made, spoofed) for made in (dns, subject, mail, directory)] == [Why.NOT_ONE_URI] * 4
    assert identify("", spoofed) is Why.NO_CERTIFICATE


@pytest.mark.requirement("S05")
@pytest.mark.parametrize("text", ["spiffe://cluster.local/admin\0.evil", "spiffe://cluster.local/admin\0", "\0"])
def test_a_name_with_a_nul_is_refused(text: str) -> None:
    for principal in (text, text.partition("\0")[0]):
        assert identify(certificate(uri(text)), principal) is Why.NOT_SPIFFE


def test_a_certificate_is_valid_between_its_dates() -> None:
    made, hour = certificate(uri()), timedelta(hours=1).total_seconds()
    times = [AT - hour - 1, AT - hour, AT, AT + hour, AT + hour + 1]
    assert [identify(made, now=now) for now in times] == [Why.NOT_YET, ID, ID, ID, Why.EXPIRED]


def pem(made: x509.Certificate) -> bytes:
    return made.public_bytes(Encoding.PEM)


MALFORMED: Final = {
    "no certificate": "x",
    "two certificates": quote(pem(certificate(uri())) * 2, safe=""),
    "a certificate and a key": quote(
        pem(certificate(uri())) + key(0).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), safe=""
    ),
    "half a certificate": quote(pem(certificate(uri()))[:200], safe=""),
    "a certificate encoded twice": quote(shown(certificate(uri())), safe=""),
    "letters beyond ASCII": "\u00e9",
    "bytes that were no text": "\udcff",
    "something else": quote(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", safe=""),
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_certificate_is_refused(text: str) -> None:
    assert identify(text) is Why.CERTIFICATE_MALFORMED


def test_a_certificate_that_is_too_large_is_not_read() -> None:
    assert identify("%" * (LONGEST + 1)) is Why.CERTIFICATE_TOO_LARGE
    assert parse_svid("%" * (LONGEST + 1)) == NoIdentity(Why.CERTIFICATE_TOO_LARGE)


@given(st.binary(max_size=60), st.integers(0, 400))
def test_nothing_makes_it_raise(noise: bytes, at: int) -> None:
    good = bytearray(pem(certificate(uri())))
    good[at : at + len(noise)] = noise
    for text in (quote(bytes(good), safe=""), noise.decode("latin-1"), quote(noise)):
        PeerCertificates().identify(AGENT, text, DOMAINS, AT)


def test_certificates_are_remembered_in_bounded_number_and_judged_anew_each_time() -> None:
    known = PeerCertificates(most=2)
    made = [shown(certificate(uri(f"spiffe://cluster.local/{n}"))) for n in range(3)]
    for n, text in enumerate(made):
        assert known.identify(f"spiffe://cluster.local/{n}", text, DOMAINS, AT) == SpiffeId("cluster.local", f"/{n}")
    assert len(known) == 2
    last = (f"spiffe://cluster.local/{2}", made[2])
    assert known.identify(*last, DOMAINS, AT + 7200) == NoIdentity(Why.EXPIRED)
    assert known.identify(*last, frozenset({"other"}), AT) == NoIdentity(Why.TRUST_DOMAIN)
    assert known.identify("", made[2], DOMAINS, AT) == NoIdentity(Why.PRINCIPAL)
    assert known.identify(*last, DOMAINS, AT) == SpiffeId("cluster.local", "/2")


def test_certificates_that_prove_nothing_are_not_remembered() -> None:
    known = PeerCertificates()
    known.identify(AGENT, shown(certificate()), DOMAINS, AT)
    known.identify(AGENT, "x", DOMAINS, AT)
    assert len(known) == 0


def test_the_extensions_of_an_ordinary_workload_are_those_that_are_tested() -> None:
    assert {type(extension.value) for extension in certificate(uri()).extensions} == {
        x509.SubjectAlternativeName,
        *(type(extension) for extension in CLIENT),
    }
