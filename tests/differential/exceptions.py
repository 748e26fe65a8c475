"""Where Envoy is known not to do what the reference says: each with its reason."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from tests.differential.model import Answer
from tests.differential.placements import AUTO, CALL_OUT, PLACEMENTS, Placement
from tests.differential.residues import claims_of, header_of, repeats
from tests.differential.site import Shot
from tests.support.policies.accepted_differences import ACCEPTED_DIFFERENCES, Effect


class Kind(Enum):
    """In which way it differs."""

    STRICTER = "Envoy denies what the reference may allow"
    STATUS = "both deny, with different statuses"
    WIDER = "Envoy allows what the reference denies"


ACCEPTED: Final = {each.key: each.effect for each in ACCEPTED_DIFFERENCES}
_EFFECTS: Final = {Kind.STRICTER: Effect.STRICTER, Kind.STATUS: Effect.STATUS, Kind.WIDER: Effect.WIDER}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A kind of requests that Envoy answers otherwise."""

    reason: str
    statuses: frozenset[int]
    """With which they are answered."""
    concerns: Callable[[Shot], bool] = lambda _shot: True
    kind: Kind = Kind.STRICTER
    only: tuple[Placement, ...] = PLACEMENTS
    says: tuple[str, ...] = ("",)
    """One of these is in what Envoy says."""
    instead_of: frozenset[int] | None = None
    """The statuses of the reference; None is any."""
    because: tuple[str, ...] = ("",)
    """How the reference's reason ends."""
    most_policies: int | None = None
    """It needs more of them than so many; None is any number."""
    residue: str = ""
    """The key of the accepted difference that it is, if it is one between placements."""

    def __post_init__(self) -> None:
        """Refuse a difference between placements that is not documented."""
        effect = ACCEPTED.get(self.residue)
        if (CALL_OUT in self.only) is bool(self.residue) or (self.residue and effect is not _EFFECTS[self.kind]):
            raise ValueError(f"{self.residue!r} is no accepted difference of this kind: {self.reason}")

    def covers(self, shot: Shot, placement: Placement, policies: int, wanted: Answer, got: Answer) -> bool:
        """Tell whether this is why the two answers differ; so many policies stand before the target."""
        return (
            placement in self.only
            and self._fits(wanted, got)
            and got.status in self.statuses
            and (self.instead_of is None or wanted.status in self.instead_of)
            and wanted.why.endswith(self.because)
            and (self.most_policies is None or policies > self.most_policies)
            and (any(each in got.why for each in self.says) or not got.why)
            and self.concerns(shot)
        )

    def _fits(self, wanted: Answer, got: Answer) -> bool:
        match self.kind:
            case Kind.STRICTER:
                return not got.allowed
            case Kind.STATUS:
                return not wanted.allowed and not got.allowed
            case Kind.WIDER:
                return not wanted.allowed and got.allowed and not got.changed
            case _:
                assert_never(self.kind)


def _repeated(*names: str) -> Callable[[Shot], bool]:
    return lambda shot: any(sum(name.lower() == each for name, _ in shot.headers) > 1 for each in names)


def _header(shot: Shot, name: str) -> str:
    return ",".join(value for each, value in shot.headers if each.lower() == name)


def _is_odd(audience: object) -> bool:
    listed = audience if isinstance(audience, list) else [audience]
    return len(listed) > 4 or not all(isinstance(each, str) for each in listed)


_DENIALS: Final = ("Access denied", "Authentication required", "Access to this tool is forbidden.")
_NOT_FOR_CLIENTS: Final = {"for servers", "for any use", "for code", "for agreeing on keys", "for encipherment"}
KNOWN: Final = {
    "underscore": Known(
        reason="a server behind may take an underscore in the name of a header for a hyphen: Envoy refuses all of them",
        statuses=frozenset({400}),
        concerns=lambda shot: any("_" in name for name, _ in shot.headers),
    ),
    "underscore in HTTP/2": Known(
        reason="the same; in HTTP/2 Envoy resets the stream",
        statuses=frozenset({0}),
        concerns=lambda shot: shot.http2 and any("_" in name for name, _ in shot.headers),
    ),
    "certificate for something else": Known(
        reason="Envoy refuses a connection whose certificate is not for clients and for signatures, by name",
        statuses=frozenset({0}),
        concerns=lambda shot: shot.certificate in _NOT_FOR_CLIENTS,
    ),
    "escaped slash": Known(
        reason="servers differ in what an escaped slash in a path is: Envoy refuses it before anybody is asked",
        statuses=frozenset({400}),
        concerns=lambda shot: "%2f" in shot.path,
    ),
    "escaped NUL": Known(
        reason="Envoy's reading of paths ends at an escaped NUL: it refuses the request before anybody is asked",
        statuses=frozenset({400}),
        concerns=lambda shot: "%00" in shot.path,
    ),
    "unknown method": Known(
        reason="Envoy's codec of HTTP/1.1 knows methods in upper case alone",
        statuses=frozenset({400}),
        concerns=lambda shot: shot.method != shot.method.upper(),
    ),
    "final dot": Known(
        reason="no route has a host that ends in a dot",
        statuses=frozenset({404}),
        concerns=lambda shot: shot.host.endswith("."),
    ),
    "upgrade": Known(
        reason="Envoy lets nobody upgrade a connection unless the route says so, and ours do not",
        statuses=frozenset({403}),
        concerns=lambda shot: (
            {("upgrade", "websocket"), ("connection", "upgrade")} <= set(shot.headers) or _repeated("upgrade")(shot)
        ),
    ),
    "large body": Known(
        reason="what is larger than maxRequestBody is refused before anybody is asked, whoever sends it",
        statuses=frozenset({413}),
        concerns=lambda shot: len(shot.body) > 4096,
    ),
    "metadata": Known(
        reason="the document that tells where to get tokens is served by Envoy itself, to everybody",
        statuses=frozenset({200, 405}),
        concerns=lambda shot: shot.path.startswith("/.well-known/oauth-protected-resource"),
    ),
    "same header twice": Known(
        reason="Envoy shows a header that is there twice with the same value as 'red,red', which is not 'red'",
        statuses=frozenset({200, 400, 401, 403, 406, 415}),
        concerns=_repeated("x-team"),
    ),
    "joined headers": Known(
        reason="Envoy shows several headers of one name as one, which is wrong for another reason",
        statuses=frozenset({200, 400, 401, 403, 405, 406, 415}),
        concerns=_repeated("content-type", "content-encoding", "mcp-name", "mcp-method"),
        kind=Kind.STATUS,
    ),
    "unread": Known(
        residue="unread-status",
        reason="whom Envoy's own rules grant nothing it denies before anybody looks at what is wrong with the request",
        statuses=frozenset({200, 401, 403}),
        kind=Kind.STATUS,
        only=(AUTO,),
        says=_DENIALS,
        instead_of=frozenset({400, 405, 406, 413, 415}),
    ),
    "several policies": Known(
        residue="several-policies-status",
        reason=(
            "Envoy requires a token unless all policies identify the sender; the engine goes by the first that denies"
        ),
        statuses=frozenset({200, 401, 403}),
        kind=Kind.STATUS,
        only=(AUTO,),
        says=_DENIALS,
        instead_of=frozenset({200, 400, 401, 403, 405, 406, 413, 415}),
        most_policies=1,
    ),
    "bearer": Known(
        residue="bearer-form",
        reason="Envoy finds tokens behind the word Bearer and one blank alone",
        statuses=frozenset({200, 401, 403}),
        concerns=lambda shot: (
            re.match(r"(?i)bearer\s+\S+$", _header(shot, "authorization")) is not None
            and not re.match(r"Bearer \S+$", _header(shot, "authorization"))
        ),
        only=(AUTO,),
        says=_DENIALS,
    ),
    "odd token": Known(
        residue="odd-token",
        reason="Envoy would try every key for a token without kid, and conditions want audiences that are texts, a few",
        statuses=frozenset({200, 401, 403}),
        concerns=lambda shot: _is_odd(claims_of(shot).get("aud", "")) or "kid" not in (header_of(shot) or {"kid"}),
        only=(AUTO,),
        says=_DENIALS,
    ),
    "token with a member twice": Known(
        residue="token-member-twice",
        reason="Envoy takes the last one; an issuer would have to sign such a token",
        statuses=frozenset({200}),
        concerns=repeats,
        kind=Kind.WIDER,
        only=(AUTO,),
    ),
}
