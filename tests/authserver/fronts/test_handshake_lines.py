"""The lines about failed handshakes say why, in words."""

import json

import pytest

from authplane.authserver.fronts.runtime.pyvoy.handshake_lines import readable_line

TLS = "TLS_error:|268435581:SSL_routines:OPENSSL_internal:"
WHYS = {
    f"{TLS}CERTIFICATE_VERIFY_FAILED:verify_cert_failed:_X509_verify_cert:_certificate_verification_error_at_depth_0:"
    "_unable_to_get_local_issuer_certificate:TLS_error_end": (
        "the client's certificate is not valid: unable to get local issuer certificate"
    ),
    f"{TLS}CERTIFICATE_VERIFY_FAILED:_at_depth_0:_certificate_has_expired": (
        "the client's certificate is not valid: certificate has expired"
    ),
    f"{TLS}PEER_DID_NOT_RETURN_A_CERTIFICATE:TLS_error_end": "the client presented no certificate",
    f"{TLS}HTTP_REQUEST": "the client does not use TLS",
}


@pytest.mark.parametrize("why", WHYS)
def test_a_code_becomes_words_with_a_remedy(why: str) -> None:
    line = {"peer": "10.0.0.1:5", "why": why, "event": "TLS handshake failed", "level": "warning"}
    made = json.loads(readable_line(json.dumps(line)))
    assert made.pop("fix").endswith(".")
    assert made.pop("why").startswith(WHYS[why])
    assert made == {name: value for name, value in line.items() if name != "why"}


@pytest.mark.parametrize("text", ["another line", '{"event":"TLS handshake failed"}', "TLS handshake failed {", "[]"])
def test_other_lines_stay_as_they_are(text: str) -> None:
    assert readable_line(text) == text


def test_a_code_that_is_not_known_stays() -> None:
    line = json.dumps({"why": f"{TLS}SOMETHING_NEW", "event": "TLS handshake failed"})
    assert readable_line(line) == line
