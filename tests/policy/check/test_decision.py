"""Which statuses a denial may have."""

import pytest

from authplane.policy.check.decision import Deny

LOCATION = (("Location", "https://a"),)


@pytest.mark.parametrize("status", [400, 401, 403, 499, 500, 599])
def test_a_denial_is_an_error(status: int) -> None:
    assert Deny(http_status=status, rule="x").http_status == status


@pytest.mark.parametrize("status", [300, 302, 399])
def test_a_denial_may_send_the_client_elsewhere(status: int) -> None:
    assert Deny(http_status=status, headers=LOCATION, rule="x").http_status == status
    with pytest.raises(ValueError, match="cannot have the HTTP status"):
        Deny(http_status=status, rule="x")


@pytest.mark.parametrize("status", [0, 100, 200, 204, 299, 600])
def test_no_denial_looks_like_success(status: int) -> None:
    for headers in ((), LOCATION):
        with pytest.raises(ValueError, match="cannot have the HTTP status"):
            Deny(http_status=status, headers=headers, rule="x")
