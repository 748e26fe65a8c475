"""Where a request carries its token (RFC 6750): in Authorization, and nowhere else."""

import re
from dataclasses import field
from typing import Final, TypeAlias

from authplane.core.values import dataclass
from authplane.policy.check.basic import Absent, Unfit
from authplane.policy.check.request import Request


@dataclass(frozen=True, slots=True)
class Bearer:
    """A token of a request that is not verified yet."""

    token: str = field(repr=False)


Shown: TypeAlias = Bearer | Absent | Unfit

_ABSENT: Final = Absent()
EMPTY: Final = Unfit("empty bearer token")
_SEVERAL: Final = "more than one Authorization header"
_JOINED: Final = re.compile(r",[ \t]*bearer(?:[ \t,]|$)", re.IGNORECASE)
"""A token after other credentials: a proxy may join several headers into one."""


def parse_bearer(request: Request) -> Shown:
    """Read the one Authorization header; several are rejected, since the origin might read another one.

    Credentials of another kind are no token. The query, the body and cookies are not read.
    """
    found = request.values("authorization")
    if not found:
        return _ABSENT
    if len(found) > 1:
        return Unfit(_SEVERAL)
    value = found[0]
    if not value.startswith("Bearer "):  # as nearly all write it
        scheme, _, _ = value.partition(" ")
        if scheme.lower() != "bearer":
            return Unfit(_SEVERAL) if _JOINED.search(value) else _ABSENT
    token = value[7:].strip(" ")
    if not token:
        return EMPTY
    return Bearer(token) if " " not in token and "," not in token else Unfit("not exactly one bearer token")
