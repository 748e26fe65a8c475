"""Header values that Envoy could not pass on as they were: each byte that is no UTF-8 becomes an exclamation mark."""

from base64 import b64encode
from collections.abc import Iterator

import pytest
from tests.support.issuers.minting import claims, mint, signer

from authplane.policy.check.basic import Credentials, parse_credentials
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.bearer import Bearer, parse_bearer
from authplane.policy.identity.tokens.compact_tokens import Compact, parse_compact


def request(authorization: str) -> Request:
    return Request(method="GET", path="/", headers=(("authorization", authorization),))


def sanitised(value: str) -> Iterator[str]:
    """Yield a value with each of its characters replaced in turn."""
    for index in range(len(value)):
        yield f"{value[:index]}!{value[index + 1 :]}"


@pytest.mark.requirement("E11")
def test_a_sanitised_password_identifies_no_user() -> None:
    whole = f"Basic {b64encode(b'alice:wonder!land!').decode()}"
    assert parse_credentials(request(whole)) == Credentials(user="alice", password=b"wonder!land!")
    for value in sanitised(whole):
        assert not isinstance(parse_credentials(request(value)), Credentials)


@pytest.mark.requirement("E11")
def test_a_sanitised_token_identifies_no_sender() -> None:
    key = signer()
    token = mint({"alg": key.algorithm, "kid": key.kid}, claims(), key.sign)
    whole = f"Bearer {token}"
    assert isinstance(parse_compact(token, {key.algorithm}), Compact)
    for value in sanitised(whole):
        shown = parse_bearer(request(value))
        assert not isinstance(shown, Bearer) or not isinstance(parse_compact(shown.token, {key.algorithm}), Compact)
