"""The accepted differences between placements: where Envoy does not do what the policy engine does.

Documentation and tests read them. The differential tests fail for a difference that is not among them.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Effect(StrEnum):
    """In which way Envoy differs."""

    WIDER = "wider"
    """Envoy allows what the engine does not."""
    STRICTER = "stricter"
    """Envoy denies, or calls out for, what the engine allows."""
    STATUS = "another status"
    """Both deny."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedDifference:
    """Where Envoy does not do what the policy engine does, although the rule is native."""

    key: str
    """What tests call it."""
    what: str
    why: str
    effect: Effect


ACCEPTED_DIFFERENCES: Final = (
    AcceptedDifference(
        key="ended-certificate",
        what="a certificate that expires during a connection",
        why="Envoy verifies certificates when a connection starts; the maximum connection age limits the effect",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="signing-certificate",
        what="a workload certificate that can sign other certificates",
        why="Envoy's conditions cannot read the key usage of a certificate; the CA that signed it is trusted",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="token-member-twice",
        what="a token with a repeated member",
        why="the jwt_authn filter uses the last value of the member",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="lenient-token",
        what="a token with single quotes, trailing commas or control characters in its JSON",
        why="the jwt_authn filter accepts such JSON; an issuer would have to sign the token",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="large-claims",
        what="claims with a NUL character, or a token that is larger or deeper than the policy server accepts",
        why="Envoy's expressions have no such limits; an issuer would have to sign the token",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="long-signature",
        what="a valid token with extra bytes after its signature",
        why="the jwt_authn filter ignores the extra bytes; the signed part is the same",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="odd-token",
        what="a token without kid, with an audience that is not a string, or with more than twelve scopes in a list",
        why="without a kid, Envoy would try every key; Envoy requires string audiences; its conditions have no loops",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="last-second",
        what="a token in the last second that the clock skew allows",
        why="Envoy rounds to whole seconds and would accept the token for too long, so authplane sets one second less",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="far-times",
        what="a token that expires after year 9999 or starts before 1970, with an empty typ, or with a cty",
        why="the jwt_authn filter rejects such times, and native rules reject such headers",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="ed25519",
        what="a token whose header names the algorithm Ed25519",
        why="Envoy supports only the older name, EdDSA",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="bearer-form",
        what="a token after the word bearer in lower case, or after two spaces",
        why="the jwt_authn filter finds no token after lower-case bearer; it also accepts other characters before a"
        " token, so native rules require exactly one space",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="header-twice",
        what="a repeated header with the value that a rule requires",
        why="Envoy's conditions read the values joined by a comma",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="large-headers",
        what="a request with headers of more than 32 KiB, to any target of a listener that has native rules",
        why="Envoy rejects the request with 431 before it evaluates a policy",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="header-bytes",
        what="a header that is not UTF-8",
        why="Envoy replaces the invalid bytes with exclamation marks in checks",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="unread-status",
        what="a request with an error, from a sender to whom no native rule grants anything",
        why="Envoy denies the request with 401 or 403 before it finds the error",
        effect=Effect.STATUS,
    ),
    AcceptedDifference(
        key="several-policies-status",
        what="a request that several policies deny",
        why="Envoy requires a token unless all policies identify the sender; the policy server uses the first "
        "policy that denies",
        effect=Effect.STATUS,
    ),
)
"""Everything that is known, each with its reason."""
