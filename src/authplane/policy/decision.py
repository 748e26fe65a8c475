"""What an authorization check concludes."""

from dataclasses import dataclass
from typing import TypeAlias

from authplane.base.headers import NO_EDITS, HeaderEdits


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The call goes on, with these edits to its headers."""

    edits: HeaderEdits = NO_EDITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call ends here. Only a denial has a status and a body."""

    http_status: int
    body: str = ""
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """No conclusion was reached. Whether that allows is for the caller's failure policy."""

    cause: str


Decision: TypeAlias = Allow | Deny | Unavailable
