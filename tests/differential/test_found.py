"""Differences that were found, and must not come back."""

from typing import Final

import pytest
from tests.policy.mcp.posting import fault, message, post

from authplane.policy.mcp.refusal import Fault

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
