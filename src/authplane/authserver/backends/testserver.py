"""The test backend: shows what reaches an authorization service, without any secret."""

from datetime import datetime
from enum import StrEnum
from functools import lru_cache, partial
from typing import ClassVar, TypeAlias, assert_never

from authplane.core.header_edits import HeaderEdits
from authplane.policy.check.auth_headers import context_headers, spoofed_headers
from authplane.policy.check.decision import Allow, Decision, Deny
from authplane.policy.check.request import Request


class Mode(StrEnum):
    """The requests that the test backend allows."""

    ALL = "all"
    """Every request."""
    PATH = "path"
    """Requests whose path contains ``allow``. The query is no part of the path, other than in contour-authserver,
    where ``/x?y=allow`` passes."""


class TestServer:
    """Echoes the context of a request in headers: to the origin when it allows, to the client when it denies.

    It caches its usual answers, which takes a check from 13 to 6 µs. Contexts come from the configuration: there are
    few of them, and so there are few answers. Names of headers come from clients, which could always send new ones:
    answers about them are not cached.
    """

    __test__: ClassVar = False
    name: ClassVar = "testserver"

    def __init__(self, *, mode: Mode = Mode.ALL) -> None:
        self._part = _part(mode)
        """The text that a path must contain."""
        self._usual_allow = lru_cache(maxsize=1024)(_allow)
        self._usual_deny = lru_cache(maxsize=1024)(partial(_deny, mode))

    def decide(self, request: Request, _now: datetime) -> Decision:
        """Judge by the mode; the answer says that it is ours and repeats the context."""
        context = tuple(request.context.items())
        if self._part not in request.path:
            return self._usual_deny(context)
        names = request.auth_names
        return _allow(context, names) if names else self._usual_allow(context)


_Pairs: TypeAlias = tuple[tuple[str, str], ...]


def _allow(context: _Pairs, auth_names: tuple[str, ...] = ()) -> Allow:
    echo = _echo(context)
    return Allow(edits=HeaderEdits(set=echo, remove=spoofed_headers(auth_names, echo)))


def _deny(mode: Mode, context: _Pairs) -> Deny:
    return Deny(
        http_status=401,
        body="The path does not contain 'allow'.\n",
        headers=_echo(context),
        rule=f"{TestServer.name} {mode}",
    )


def _echo(context: _Pairs) -> _Pairs:
    return (("Auth-Handler", TestServer.name), *context_headers(context))


def _part(mode: Mode) -> str:
    match mode:
        case Mode.ALL:
            return ""
        case Mode.PATH:
            return "allow"
        case _:
            assert_never(mode)
