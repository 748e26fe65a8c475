"""Which certificates of an installation are renewed."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from cryptography import x509

from authplane.devkit.identities.installation_certificates import (
    AuthorityError,
    Data,
    Part,
    new_authority,
    read_authority,
    renewed,
)

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
LIFETIME: Final = timedelta(days=90)
PART: Final = Part(secret="control-tls", host="control.internal")
CA: Final = new_authority("tests", NOW)
OTHER_CA: Final = new_authority("tests", NOW)


def made(part: Part = PART, *, ca: Data = CA, days: int = 0) -> Data:
    now = NOW - timedelta(days=days)
    data = renewed(read_authority("ca", ca, now, LIFETIME), part, None, now=now, lifetime=LIFETIME)
    assert data is not None
    return data


GOOD: Final = made()
CASES: Final[Mapping[str, tuple[Data | None, bool]]] = {
    "none": (None, True),
    "a good one": (GOOD, False),
    "one with a little more than a third left": (made(days=59), False),
    "one with a third left": (made(days=60), True),
    "one that has ended": (made(days=200), True),
    "one with another name": (made(Part(secret="x", host="other.internal")), True),
    "one of another CA": (made(ca=OTHER_CA), True),
    "one of another CA that claims this CA": ({**made(ca=OTHER_CA), "ca.crt": CA["ca.crt"]}, True),
    "one with a key that does not fit": ({**GOOD, "tls.key": made()["tls.key"]}, True),
    "one without a key": ({name: GOOD[name] for name in ("ca.crt", "tls.crt")}, True),
    "something else": ({**GOOD, "tls.crt": b"nothing"}, True),
}


@pytest.mark.requirement("KI-6")
@pytest.mark.parametrize(("found", "is_renewed"), CASES.values(), ids=CASES.keys())
def test_a_certificate_is_renewed_if_it_does_not_fit(found: Data | None, is_renewed: bool) -> None:
    data = renewed(read_authority("ca", CA, NOW, LIFETIME), PART, found, now=NOW, lifetime=LIFETIME)
    assert (data is not None) is is_renewed


def test_a_certificate_is_for_servers_and_clients_with_one_name() -> None:
    certificate = x509.load_pem_x509_certificate(GOOD["tls.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert names.get_values_for_type(x509.DNSName) == ["control.internal"]
    assert {each._name for each in usage} == {"serverAuth", "clientAuth"}
    assert certificate.not_valid_after_utc == NOW + LIFETIME


UNUSABLE: Final[Mapping[str, tuple[Data, str]]] = {
    "no key": ({"ca.crt": CA["ca.crt"]}, "has no usable CA in ca.crt and ca.key"),
    "no certificate": ({**CA, "ca.crt": b"nothing"}, "has no usable CA in ca.crt and ca.key"),
    "a key of another": ({**CA, "ca.key": OTHER_CA["ca.key"]}, "does not fit its certificate"),
    "ends too early": (new_authority("tests", NOW - timedelta(days=3600)), "ends on 2026-02-20, before"),
}


@pytest.mark.parametrize(("data", "words"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_ca_that_cannot_sign_is_an_error_with_a_remedy(data: Data, words: str) -> None:
    with pytest.raises(AuthorityError, match=words) as raised:
        read_authority("ca", data, NOW, LIFETIME)
    assert str(raised.value).endswith(
        "Delete the Secret ca to get a new CA, run this command again, and restart all parts."
    )
