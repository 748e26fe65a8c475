from authplane.policy.check.answer_headers import fit_name
from authplane.policy.identity.workload_identity.identity_headers import IDENTITY_HEADERS, headers_to_strip


def test_identity_headers_are_stripped_unseen_in_both_spellings() -> None:
    stripped = headers_to_strip(())
    assert {"x-forwarded-client-cert", "x_forwarded_client_cert", "x-spiffe-id", "x_spiffe_id"} <= set(stripped)
    assert list(stripped) == sorted(set(stripped))
    assert all(fit_name(name) for name in stripped)


def test_a_mixed_spelling_is_stripped_if_the_request_has_it() -> None:
    more = set(headers_to_strip(("X-Forwarded_Client-Cert", "accept", "x-forwarded-for"))) - set(headers_to_strip(()))
    assert more == {"x-forwarded_client-cert"}


def test_credentials_are_no_identity_headers() -> None:
    assert {"authorization", "cookie"}.isdisjoint(IDENTITY_HEADERS)
    assert list(IDENTITY_HEADERS) == sorted(set(IDENTITY_HEADERS))
