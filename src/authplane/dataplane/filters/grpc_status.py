"""HTTP statuses as status codes of gRPC."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from authplane.dataplane.filters.calls import Code

# https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md
_CODES: Final[Mapping[int, Code]] = MappingProxyType(
    {
        400: Code.INTERNAL,
        401: Code.UNAUTHENTICATED,
        403: Code.PERMISSION_DENIED,
        404: Code.UNIMPLEMENTED,
        429: Code.UNAVAILABLE,
        502: Code.UNAVAILABLE,
        503: Code.UNAVAILABLE,
        504: Code.UNAVAILABLE,
    }
)


def code_of_http(status: int) -> Code:
    """Return the code for an HTTP status; never OK, since the call did not succeed."""
    return _CODES.get(status, Code.UNKNOWN)
