"""The accepted differences between placements: where Envoy does not do what the policy engine does.

Documentation and tests read them. The differential tests fail for a difference that is not among them.
"""

from enum import StrEnum
from typing import Final

from authplane.core.values import dataclass


class Effect(StrEnum):
    """In which way Envoy differs."""

    WIDER = "wider"
    """Envoy allows what the engine does not."""
    STRICTER = "stricter"
    """Envoy denies, or asks about, what the engine allows."""
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
    body: bool = False
    """It is left to the JSON parser of the server behind Envoy, and only with ``bodyInspection: Native``."""


ACCEPTED_DIFFERENCES: Final = (
    AcceptedDifference(
        key="lookalike-members",
        what="a body with members such as Params, NAME, or name and a NUL, beside the real ones",
        why="only with bodyInspection: Native; a server whose parser folds names would read another tool",
        effect=Effect.WIDER,
        body=True,
    ),
    AcceptedDifference(
        key="lists",
        what="a body with a second name, params or method, or a result or error, whose value is a list, or with "
        "duplicates inside of lists",
        why="only with bodyInspection: Native; the mcp filter does not look into lists",
        effect=Effect.WIDER,
        body=True,
    ),
    AcceptedDifference(
        key="second-object",
        what="a body with a second object behind the first, in a later chunk",
        why="only with bodyInspection: Native; the mcp filter stops at the end of the first",
        effect=Effect.WIDER,
        body=True,
    ),
    AcceptedDifference(
        key="lenient-json",
        what="a body with single quotes, bare names, trailing commas, or control characters in its texts",
        why="only with bodyInspection: Native; the mcp filter takes it for JSON",
        effect=Effect.WIDER,
        body=True,
    ),
    AcceptedDifference(
        key="unread-parts",
        what="a message with a mistake in a part that no rule reads: params, arguments or _meta of another type, or "
        "a notification with an id that is a list",
        why="only with bodyInspection: Native; the mcp filter does not tell these parts",
        effect=Effect.WIDER,
        body=True,
    ),
    AcceptedDifference(
        key="deep-body",
        what="a body with objects and lists in each other, deeper than the policy server takes and up to 98 deep",
        why="only with bodyInspection: Native; the mcp filter takes them",
        effect=Effect.WIDER,
        body=True,
    ),
    AcceptedDifference(
        key="ended-certificate",
        what="a certificate that ends while its connection goes on",
        why="Envoy looks at certificates when connections begin: how long these may last bounds it",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="signing-certificate",
        what="a workload's certificate with which others may be signed",
        why="conditions do not see what a certificate is for; whoever trusts its signer trusts its owner anyway",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="token-member-twice",
        what="a token in which a member stands twice",
        why="the jwt_authn filter takes the last one",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="lenient-token",
        what="a token with single quotes, trailing commas or control characters in its JSON",
        why="the jwt_authn filter takes it for JSON; an issuer would have to sign it",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="large-claims",
        what="claims with a NUL character, or a token larger and deeper than the policy server takes",
        why="Envoy's expressions have no such limits; an issuer would have to sign them",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="long-signature",
        what="a good token whose signature has more bytes behind it",
        why="the jwt_authn filter reads the same numbers from it; what was signed is the same",
        effect=Effect.WIDER,
    ),
    AcceptedDifference(
        key="odd-token",
        what="a token without kid, with an audience that is no text, or with more than twelve scopes in a list",
        why="Envoy would try every key, wants texts even where no rule asks, and conditions have no loops",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="last-second",
        what="a token in the last second in which a clock skew still makes up for its times",
        why="Envoy has whole seconds, and would take it for up to one too long: so it is told one less",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="far-times",
        what="a token that ends after all calendars or begins before 1970, or with an empty typ, or with a cty",
        why="the jwt_authn filter takes no such numbers, and rules take no such header",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="ed25519",
        what="a token whose header names the algorithm Ed25519",
        why="Envoy knows it by its older name only, EdDSA",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="bearer-form",
        what="a token behind the word bearer in lower case, or behind two spaces",
        why="the jwt_authn filter finds the first nowhere, and finds tokens behind more than spaces",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="accept",
        what="a message whose Accept does not have both application/json and text/event-stream",
        why="only with bodyInspection: Native; the mcp filter refuses it with 400, as MCP has it",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="newest-version",
        what="a message of MCP 2026-07-28 without the headers and _meta that it has to have",
        why="only with bodyInspection: Native; the mcp filter of Envoy 1.40 refuses it before anybody is asked",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="endless-body",
        what="a body without content-length that goes on behind the message and is larger than Envoy holds",
        why="only with bodyInspection: Native; it gets no answer until it has taken too long to arrive",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="header-twice",
        what="a header twice with the same value that a rule asks for",
        why="conditions see the values joined by a comma",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="large-headers",
        what="headers of more than 32 KiB, to any target of a listener that has native rules",
        why="Envoy refuses them with 431 before it looks for anybody to judge",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="header-bytes",
        what="a header that is not UTF-8",
        why="those whom Envoy asks get it with exclamation marks",
        effect=Effect.STRICTER,
    ),
    AcceptedDifference(
        key="mcp-status",
        what="a body that is no MCP message",
        why="the mcp filter refuses it with 400 or 405 before anybody is asked; the policy server has a status for "
        "each mistake",
        effect=Effect.STATUS,
    ),
    AcceptedDifference(
        key="unread-status",
        what="a request with a mistake, from a sender whom no native rule grants anything",
        why="Envoy denies it with 401 or 403 before anybody looks at what is wrong with it",
        effect=Effect.STATUS,
    ),
    AcceptedDifference(
        key="several-policies-status",
        what="a request that several policies deny",
        why="Envoy asks for a token unless all policies know the sender; the policy server goes by the first that "
        "denies",
        effect=Effect.STATUS,
    ),
)
"""Everything that is known, each with its reason."""
