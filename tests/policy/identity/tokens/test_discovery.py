import json
from typing import Final

import pytest

from authplane.policy.identity.tokens.discovery import Metadata, Rejected, discovery_urls, parse_metadata
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.identity.tokens.key_lifetime import Bounds, lifetime

URL: Final = "https://login.example.com/tenant"
ISSUER: Final = IssuerUrl(url=URL, literal=URL)
KEYS: Final = "https://login.example.com/keys"


def document(**extra: object) -> bytes:
    return json.dumps({"issuer": URL, "jwks_uri": KEYS, "more": {"a": [1]}, **extra}).encode()


def test_a_document_of_a_mebibyte_is_read_and_a_longer_one_is_not() -> None:
    short = document(pad="")
    longest = document(pad="x" * (1024 * 1024 - len(short)))
    assert len(longest) == 1024 * 1024
    assert parse_metadata(longest, ISSUER, ()) == Metadata(jwks_uri=KEYS)
    assert isinstance(parse_metadata(longest + b" ", ISSUER, ()), Rejected)


def test_a_document_is_looked_for_where_openid_has_it_and_then_where_rfc_8414_has_it() -> None:
    assert discovery_urls(URL) == (
        "https://login.example.com/tenant/.well-known/openid-configuration",
        "https://login.example.com/.well-known/oauth-authorization-server/tenant",
        "https://login.example.com/.well-known/openid-configuration/tenant",
    )


@pytest.mark.parametrize("url", ["https://a.example", "https://a.example/"])
def test_without_a_path_there_are_two_places(url: str) -> None:
    assert discovery_urls(url) == (
        "https://a.example/.well-known/openid-configuration",
        "https://a.example/.well-known/oauth-authorization-server",
    )


@pytest.mark.requirement("A7", "J31", "S3")
@pytest.mark.parametrize(
    "issuer", [f"{URL}/", URL.upper(), "https://evil.example", "", None, [URL], {"a": 1}, 5], ids=str
)
def test_a_document_of_another_issuer_is_rejected(issuer: object) -> None:
    rejected = parse_metadata(document(issuer=issuer), ISSUER, ())
    assert isinstance(rejected, Rejected)
    assert rejected.why.startswith("the discovery document names another issuer: ")


def test_an_issuer_written_without_scheme_may_call_itself_either() -> None:
    schemeless = IssuerUrl(url=URL, literal=URL.removeprefix("https://"))
    for name in (schemeless.url, schemeless.literal):
        assert parse_metadata(document(issuer=name), schemeless, ()) == Metadata(jwks_uri=KEYS)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"<html>", b'{"issuer":"a","issuer":"b"}', b"[" * 100_000], ids=["", "[]", "html", "2", "deep"]
)
def test_what_cannot_be_read_is_rejected(data: bytes) -> None:
    assert isinstance(parse_metadata(data, ISSUER, ()), Rejected)


PLACES: Final = {
    "the issuer's host": (KEYS, True),
    "another port": ("https://login.example.com:8443/keys", True),
    "a host below the issuer's": ("https://keys.login.example.com/", True),
    "a host that is listed": ("https://keys.example.net/keys", True),
    "a query": ("https://login.example.com/keys?p=b2c", True),
    "a host beside the issuer's": ("https://keys.example.com/", False),
    "a host above the issuer's": ("https://example.com/", False),
    "a host below a listed one": ("https://a.keys.example.net/", False),
    "a host that ends alike": ("https://evil-login.example.com/", False),
    "a foreign host": ("https://evil.example/", False),
    "http": ("http://login.example.com/keys", False),
    "a file": ("file:///etc/passwd", False),
    "ftp": ("ftp://login.example.com/keys", False),
    "data": ("data:application/json,{}", False),
    "a user": ("https://login.example.com@evil.example/", False),
    "no address": ("keys", False),
    "a number": (5, False),
    "nothing": (None, False),
}


@pytest.mark.requirement("J31")
@pytest.mark.parametrize(("jwks_uri", "taken"), PLACES.values(), ids=PLACES.keys())
def test_keys_come_from_the_issuers_own_hosts_and_those_listed(jwks_uri: object, taken: bool) -> None:
    found = parse_metadata(document(jwks_uri=jwks_uri), ISSUER, ("keys.example.net",))
    assert isinstance(found, Metadata) is taken


@pytest.mark.requirement("S4")
def test_keys_over_http_are_rejected_with_a_reason() -> None:
    assert parse_metadata(document(jwks_uri="http://login.example.com/keys"), ISSUER, ()) == Rejected(
        "jwks_uri 'http://login.example.com/keys': it does not start with https://"
    )


def test_an_issuer_of_development_has_its_keys_in_plain_at_the_same_place_only() -> None:
    plain = IssuerUrl(url="http://127.0.0.1:8080", literal="http://127.0.0.1:8080")

    def taken(jwks_uri: str) -> bool:
        body = json.dumps({"issuer": plain.url, "jwks_uri": jwks_uri}).encode()
        return isinstance(parse_metadata(body, plain, ()), Metadata)

    assert taken("http://127.0.0.1:8080/keys")
    assert not taken("http://127.0.0.1:8081/keys")
    assert not taken("http://127.0.0.1:8080.evil.example/keys")


LIFETIMES: Final = {
    "nothing said": ("", "", 600),
    "a usual time": ("public, max-age=3600", "", 3600),
    "a year": ("max-age=31536000", "", 86400),
    "no-store": ("no-store", "", 60),
    "no-cache": ("no-cache, max-age=3600", "", 60),
    "zero": ("max-age=0", "", 60),
    "spent on the way": ("max-age=3600", "3000", 600),
    "spent all": ("max-age=3600", "9999", 60),
    "in capitals": ("Max-Age=120", "", 120),
    "in quotes": ('max-age="120"', "", 120),
    "twice": ("max-age=120, max-age=7200", "", 120),
    "no number": ("max-age=x", "", 600),
    "negative": ("max-age=-5", "", 600),
    "an endless number": (f"max-age={'9' * 5000}", "", 600),
    "an age that is no number": ("max-age=3600", "x", 3600),
}


@pytest.mark.requirement("J37")
@pytest.mark.parametrize(("control", "age", "want"), LIFETIMES.values(), ids=LIFETIMES.keys())
def test_cache_control_is_followed_within_bounds(control: str, age: str, want: float) -> None:
    assert lifetime(control, age, Bounds()) == want
