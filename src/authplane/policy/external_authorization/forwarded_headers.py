"""The headers of a request that an external service gets."""

from collections.abc import Iterator
from typing import Final

from authplane.policy.check.request import Request
from authplane.policy.external_authorization.check_hops import HOPS_HEADER
from authplane.policy.identity.workload_identity.identity_headers import headers_to_strip

PARTIAL: Final = "x-envoy-auth-partial-body"
_OURS: Final = frozenset({PARTIAL, HOPS_HEADER})


def told_headers(request: Request) -> Iterator[tuple[str, str]]:
    """Yield every header except those that a proxy sets: a service might trust them."""
    hidden = _OURS.union(headers_to_strip(name for name, _ in request.headers))
    return ((name, value) for name, value in request.headers if name not in hidden)
