"""The test backend: shows what reaches an authorization server, without any secret."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final, assert_never

from authplane.base.headers import HeaderEdits
from authplane.policy.decision import Allow, Decision, Deny
from authplane.policy.headers import fit_name, fit_value
from authplane.policy.request import Request

_CONTEXT: Final = "auth-context-"
_OWNED: Final = ("auth-handler", "auth-realm", "auth-username")
_OURS: Final = ("auth-", "auth_")
_ALWAYS: Final = ("auth-realm", "auth-username", "auth_handler", "auth_realm", "auth_username")
"""Removed from every request: the names above in both spellings, but for the one that is always set."""
_WORD: Final = re.compile(r"[^-]+")


class Mode(StrEnum):
    """What the test backend allows."""

    ALL = "all"
    """Every request."""
    PATH = "path"
    """Requests whose path contains ``allow``. The query is no part of the path, other than in contour-authserver,
    where ``/x?y=allow`` passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestServer:
    """Echoes the context of a request in headers: to the origin when it allows, to the client when it denies."""

    __test__: ClassVar = False
    name: ClassVar = "testserver"

    mode: Mode = Mode.ALL

    def decide(self, request: Request, _now: datetime) -> Decision:
        """Judge by the mode; the answer says that it is ours and repeats the context."""
        echo = (("Auth-Handler", self.name), *_echo(request))
        if _passes(self.mode, request):
            return Allow(edits=HeaderEdits(set=echo, remove=_spoofed(request, echo)))
        return Deny(
            http_status=401,
            body="The path does not contain 'allow'.\n",
            headers=echo,
            rule=f"{self.name} {self.mode}",
        )


def _passes(mode: Mode, request: Request) -> bool:
    match mode:
        case Mode.ALL:
            return True
        case Mode.PATH:
            return "allow" in request.path
        case _:
            assert_never(mode)


def _echo(request: Request) -> tuple[tuple[str, str], ...]:
    """Name a header for each entry of the context; an entry that no header can carry is left out."""
    if not request.context:
        return ()
    named = {_canonical(_CONTEXT + key): value for key, value in sorted(request.context.items(), reverse=True)}
    return tuple(sorted((name, value) for name, value in named.items() if fit_name(name) and fit_value(value)))


# The keys of a context come from the configuration: there are few.
@lru_cache(maxsize=1024)
def _canonical(name: str) -> str:
    """Write a name as Go does: each word between hyphens starts with a capital."""
    return _WORD.sub(lambda word: word[0][:1].upper() + word[0][1:].lower(), name)


def _spoofed(request: Request, echo: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """List the headers of ours that we do not set: a client must not speak in our name.

    The fixed names are listed unseen, since a proxy may be told to send us only some headers. Underscores count as
    hyphens: an origin may not tell them apart.
    """
    seen = [name for name, _ in request.headers if name.startswith(_OURS)]
    if not seen:
        return _ALWAYS
    ours = {name.lower() for name, _ in echo}
    plain = {name: name.replace("_", "-") for name in seen}
    spoofed = {name for name in seen if plain[name].startswith(_CONTEXT) or plain[name] in _OWNED}
    return tuple(sorted((spoofed | set(_ALWAYS)) - ours))
