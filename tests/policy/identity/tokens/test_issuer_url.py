from typing import Final

import pytest

from authplane.core.problems import Problems
from authplane.policy.identity.tokens.issuer_url import IssuerUrl, parse_issuer_url

GOOD: Final = [
    "https://issuer.example",
    "https://issuer.example/",
    "https://issuer.example:8443/realms/a",
    "https://127.0.0.1:8443",
    "https://[::1]:8443/a",
    "https://Issuer.Example/Tenant",
]

BAD: Final = {
    "http": ("http://issuer.example", "it does not start with https://"),
    "another scheme": ("ftp://issuer.example", "it does not start with https://"),
    "a file": ("file:///etc/passwd", "it does not start with https://"),
    "HTTPS in capitals": ("HTTPS://issuer.example", "it does not start with https://"),
    "a user": ("https://a@b.example", "it has a user"),
    "a user and a password": ("https://a:b@c.example", "it has a user"),
    "a fragment": ("https://issuer.example#x", "it has a fragment"),
    "an empty fragment": ("https://issuer.example#", "it has a fragment"),
    "a query": ("https://issuer.example?x=1", "it has a query"),
    "an empty query": ("https://issuer.example?", "it has a query"),
    "nothing": ("", "it has no valid host"),
    "no host": ("https:///path", "it has no valid host"),
    "a blank": ("https://issuer.example/a b", "it has spaces"),
    "a newline": ("https://issuer.example\n", "it has spaces"),
    "not ASCII": ("https://\u0131ssuer.example", "it has spaces"),
    "a backslash": ("https://issuer.example\\@evil.example", "it has a backslash"),
    "no number for a port": ("https://issuer.example:x", "it cannot be parsed"),
    "port zero": ("https://issuer.example:0", "it has no valid port"),
    "an empty port": ("https://issuer.example:", "it has no valid port"),
    "dots": ("https://issuer.example/a/../b", "its path has . or .. segments"),
    "a dot at the end": ("https://issuer.example./", "it has no valid host"),
    "two dots in the host": ("https://issuer..example/", "it has no valid host"),
    "a bad address": ("https://[::1", "it cannot be parsed"),
    "too long": (f"https://issuer.example/{'a' * 2048}", "it has spaces"),
    "schemeless with a user": ("a@b.example", "it has a user"),
    "schemeless with a query": ("issuer.example?x", "it has a query"),
}


@pytest.mark.parametrize("text", GOOD)
def test_an_https_address_is_kept_as_it_is_written(text: str) -> None:
    problems = Problems()
    assert parse_issuer_url(text, problems) == IssuerUrl(url=text, literal=text)
    assert not problems


@pytest.mark.requirement("A7", "J36")
@pytest.mark.parametrize(("text", "why"), BAD.values(), ids=BAD.keys())
def test_addresses_that_are_refused(text: str, why: str) -> None:
    problems = Problems()
    assert parse_issuer_url(text, problems) is None
    assert [problem.reason for problem in problems.errors] == ["InvalidIssuer"]
    assert why in str(next(iter(problems)))


@pytest.mark.requirement("J36", "I2")
@pytest.mark.parametrize("text", ["auth-server.example.com", "auth-server.example.com/tenant", "host:8443"])
def test_an_address_without_scheme_is_https_with_a_warning_and_may_be_called_either(text: str) -> None:
    problems = Problems()
    parsed = parse_issuer_url(text, problems)
    assert parsed == IssuerUrl(url=f"https://{text}", literal=text)
    assert parsed.names() == {f"https://{text}", text}
    assert (problems.errors, len(problems.warnings)) == ((), 1)


@pytest.mark.requirement("I2")
@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("http://127.0.0.1:8080/a", True),
        ("http://localhost:8080", True),
        ("http://issuer.example", False),
        ("http://10.0.0.1", False),
        ("http://a@localhost", False),
        ("ftp://localhost", False),
    ],
)
def test_in_development_http_is_taken_on_this_machine_only(text: str, taken: bool) -> None:
    assert (parse_issuer_url(text, Problems(), allow_http=True) is not None) is taken
    assert parse_issuer_url(text, Problems()) is None
