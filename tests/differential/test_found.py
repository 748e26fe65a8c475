"""Differences that were found, and must not come back."""

from typing import Final

import pytest
from tests.support.mcp.posted_messages import ACCEPT, JSON, fault, message, post

from authplane.policy.check.basic import Absent, Unfit
from authplane.policy.check.request import Request
from authplane.policy.identity.tokens.bearer import parse_bearer
from authplane.policy.mcp.mcp_refusal import Fault
from authplane.policy.mcp.read_request import read_mcp

JOINED: Final = {
    "two sessions": ("mcp-session-id", "a", "b"),
    "two credentials": ("authorization", "Basic eDp5", "Bearer x.y.z"),
    "two places to go on from": ("last-event-id", "1", "2"),
}


@pytest.mark.requirement("P16")
@pytest.mark.parametrize("joined", JOINED.values(), ids=JOINED.keys())
def test_what_a_proxy_has_joined_is_refused_as_what_it_has_not(joined: tuple[str, str, str]) -> None:
    name, first, second = joined
    apart = post(message(), (name, first), (name, second))
    together = post(message(), (name, f"{first},{second}"))
    assert fault(apart) is fault(together) is Fault.HEADER_REPEATED


def test_one_of_each_is_not_refused() -> None:
    for name, value, _ in JOINED.values():
        assert fault(post(message(), (name, value))) is None


SCHEMES: Final = {
    "a token after a password": ("Basic eDp5,Bearer x.y.z", Unfit("more than one Authorization header")),
    "a token after a password and a blank": ("Basic eDp5, bearer x.y.z", Unfit("more than one Authorization header")),
    "a password after a token": ("Bearer x.y.z,Basic eDp5", Unfit("not exactly one bearer token")),
    "a password": ("Basic eDp5", Absent()),
    "a digest": ('Digest username="Bearer", realm="x"', Absent()),
}


@pytest.mark.parametrize(("value", "want"), SCHEMES.values(), ids=SCHEMES.keys())
def test_a_token_that_a_proxy_has_joined_to_something_is_not_overlooked(value: str, want: Absent | Unfit) -> None:
    assert parse_bearer(Request(method="POST", path="/mcp", headers=(("authorization", value),))) == want


@pytest.mark.requirement("P16")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_two_content_types_are_refused_even_where_there_is_no_content(method: str) -> None:
    def read(*headers: tuple[str, str]) -> Fault | None:
        return fault(read_mcp(method, (ACCEPT, ("mcp-session-id", "a"), *headers), "/mcp", b"", complete=True))

    assert read(JSON) is None
    assert read(JSON, JSON) is read(("content-type", "application/json,application/json")) is Fault.HEADER_REPEATED
