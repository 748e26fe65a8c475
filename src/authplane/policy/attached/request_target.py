"""The target of a check, which the route of the request names."""

from functools import lru_cache
from typing import Final

from authplane.core.names import Ref
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.rules.policy_targets import BACKENDS

GATEWAY: Final = "authplane.gateway"
"""The key that names the Gateway, and perhaps the listener: ``Gateway/<namespace>/<name>[/<listener>]``."""

NOWHERE: Final = RequestTarget()


# Contexts come from the configuration: there are few of them. To read one takes 3.5 µs of a decision of 40 µs, and to
# find it here 0.1 µs.
@lru_cache(maxsize=4096)
def parse_target(backend: str | None, gateway: str | None) -> RequestTarget:
    """Read where a request goes; what is not named as it must be is nowhere, and nowhere nothing is allowed."""
    parts = () if backend is None else tuple(backend.split("/"))
    steps = () if gateway is None else tuple(gateway.split("/"))
    odd = (backend is not None and not (len(parts) == 3 and parts[0] in BACKENDS)) or (
        gateway is not None and not (len(steps) in {3, 4} and steps[0] == "Gateway")
    )
    if odd:
        return NOWHERE
    return RequestTarget(
        backend=Ref(*parts) if parts else None,
        gateway=Ref(*steps[:3]) if steps else None,
        section=steps[3] if len(steps) > 3 else "",
    )
