import pytest

from authplane.dataplane.filters.calls import Code
from authplane.dataplane.filters.grpc_status import code_of_http

CODES = {
    400: Code.INTERNAL,
    401: Code.UNAUTHENTICATED,
    403: Code.PERMISSION_DENIED,
    404: Code.UNIMPLEMENTED,
    429: Code.UNAVAILABLE,
    502: Code.UNAVAILABLE,
    503: Code.UNAVAILABLE,
    504: Code.UNAVAILABLE,
}


@pytest.mark.requirement("ST-1")
def test_http_statuses_have_fixed_codes_and_none_is_ok() -> None:
    assert {status: code_of_http(status) for status in CODES} == CODES
    others = [*range(-1, 1000), 2**31 - 1]
    assert {code_of_http(status) for status in others if status not in CODES} == {Code.UNKNOWN}
