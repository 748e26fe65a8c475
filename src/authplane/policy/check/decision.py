"""The decisions of a check."""

from dataclasses import field
from typing import TypeAlias

from authplane.core.header_edits import NO_EDITS, HeaderEdits
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """The call goes on, with these edits to its headers."""

    edits: HeaderEdits = NO_EDITS
    response_headers: tuple[tuple[str, str], ...] = ()
    """Added to the response to the client; a repeated name is sent repeatedly."""
    identity: str = ""
    """Who was recognised, for the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """The call ends here. Only a denial has a status and a body.

    The status is 4xx, 5xx, or 3xx with a ``Location``: a client can never take a denial for a success.
    """

    http_status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent to the client; a repeated name is sent repeatedly."""
    message: str = ""
    """What a gRPC server adds to the details of its status, in place of a body."""
    rule: str
    reason: str = field(default="", compare=False)
    """Why, for the log, in a word that programs can rely on. Denials that a client cannot tell apart are equal."""
    identity: str = ""
    """Who was recognised, for the log."""
    decision_id: str = ""
    """The id that the body or the message names, if one does: then no other denial is equal to this one."""

    def __post_init__(self) -> None:
        redirects = 300 <= self.http_status < 400 and any(name.lower() == "location" for name, _ in self.headers)
        if not redirects and not 400 <= self.http_status < 600:
            raise ValueError(f"a denial cannot have the HTTP status {self.http_status}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unavailable:
    """No conclusion was reached. Whether that allows is for the caller's failure policy."""

    cause: str
    """For the log."""
    body: str = ""
    """Sent to the client where the failure policy denies; it may name the id of this decision."""
    headers: tuple[tuple[str, str], ...] = ()


Decision: TypeAlias = Allow | Deny | Unavailable
