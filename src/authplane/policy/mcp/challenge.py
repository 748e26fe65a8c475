"""Challenges of RFC 6750 that tell a client which token it needs and where it learns to get one (RFC 9728)."""

import re
from collections.abc import Iterable
from typing import Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.policy.check.basic import fit_realm

_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,1024}")
_URL: Final = re.compile(r"https?://[!$-;=?-\[\]_a-z~]{1,2000}")
_TO_ESCAPE: Final = re.compile(r'(["\\])')
_LONGEST: Final = 4096
_UNDESCRIBED: Final = re.compile(r"[^ !#-\[\]-~]")
_LONGEST_DESCRIPTION: Final = 1024


@dataclass(frozen=True, slots=True)
class NoToken:
    """The request has no token."""


@dataclass(frozen=True, slots=True)
class BadToken:
    """The request's token proves nothing."""

    why: str = ""
    """What is wrong with it, for people; empty says nothing."""


@dataclass(frozen=True, slots=True)
class MoreScope:
    """The token is good and does not reach so far."""


Cause: TypeAlias = NoToken | BadToken | MoreScope


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The parameters of a challenge; each is valid in a header."""

    realm: str
    resource_metadata: str = ""
    """The address of the server's RFC 9728 document; empty if there is none."""
    scopes: tuple[str, ...] = ()
    """All scopes that the operation needs."""

    def __post_init__(self) -> None:
        if not fit_realm(self.realm):
            raise ValueError("the realm is not printable ASCII of 1 to 128 characters")
        if self.resource_metadata and not fit_url(self.resource_metadata):
            raise ValueError("the metadata URL is not an HTTP URL")
        if not all(fit_scope(scope) for scope in self.scopes):
            raise ValueError("a scope must be visible ASCII without quotes and backslashes")


def fit_scope(scope: str) -> bool:
    """Tell whether this is a scope as RFC 6749 has it."""
    return _SCOPE.fullmatch(scope) is not None


def fit_url(url: str) -> bool:
    """Tell whether this is an HTTP address that fits into a quoted text unchanged."""
    return _URL.fullmatch(url) is not None


def render_challenge(challenge: Challenge, cause: Cause) -> str:
    """Write the value of ``WWW-Authenticate``.

    If there are more scopes than a header can carry, none is named: some of them would get the client no further.
    """
    realm = _TO_ESCAPE.sub(r"\\\1", challenge.realm)
    fields = [f'realm="{realm}"', *_error(cause)]
    metadata = [f'resource_metadata="{challenge.resource_metadata}"'] if challenge.resource_metadata else []
    scope = [f'scope="{" ".join(_unique(challenge.scopes))}"'] if challenge.scopes else []
    whole = f"Bearer {', '.join([*fields, *scope, *metadata])}"
    return whole if len(whole) <= _LONGEST else f"Bearer {', '.join([*fields, *metadata])}"


def _error(cause: Cause) -> list[str]:
    match cause:
        case NoToken():
            # RFC 6750, 3.1: a challenge to a request without credentials names no error.
            return []
        case BadToken(why=why):
            # RFC 6750 §3: the description has printable ASCII without quotation marks and backslashes.
            said = _UNDESCRIBED.sub("?", why.replace('"', "'"))[:_LONGEST_DESCRIPTION]
            return ['error="invalid_token"', *([f'error_description="{said}"'] if said else [])]
        case MoreScope():
            return ['error="insufficient_scope"']
        case _:
            assert_never(cause)


def _unique(scopes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(scopes))
