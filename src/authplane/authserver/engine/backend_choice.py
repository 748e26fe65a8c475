"""Picks the backend that decides a request."""

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Final, TypeAlias, assert_never

from authplane.authserver.engine.backend import Backend
from authplane.core.values import dataclass
from authplane.policy.check.decision import Deny
from authplane.policy.check.request import Request

NOBODY: Final = "-"
"""The name in answers without a backend, if a choice picked none; no backend can have it."""


@dataclass(frozen=True, slots=True)
class ByContext:
    """Requests whose route has this entry in its context: the operator sets it, and no client can change it."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class ByHost:
    """Requests for one host, or for the hosts below ``*.``, whatever the case; the port does not count."""

    host: str


@dataclass(frozen=True, slots=True)
class ByPath:
    """Requests for a path and what is below it; ``/a`` does not cover ``/ab``."""

    prefix: str


Condition: TypeAlias = ByContext | ByHost | ByPath


@dataclass(frozen=True, slots=True)
class Branch:
    """A backend, its name, and the conditions that must all match."""

    name: str
    conditions: tuple[Condition, ...]
    backend: Backend


@dataclass(frozen=True, slots=True)
class Choice:
    """Picks the first branch that fits; a request that fits none is denied.

    If a branch is chosen by path, a request with an ambiguous path is denied as well: the origin might serve another
    path than the one that was checked.
    """

    branches: Sequence[Branch]
    only: Branch | None = field(init=False)
    """The branch that gets every request, if there is no other and it has no condition."""
    nobody: str = field(init=False)
    """The backend's name in answers for which no branch was picked: that of `only`, or `NOBODY`."""
    _by_path: bool = field(init=False)

    def __post_init__(self) -> None:
        conditions = [condition for branch in self.branches for condition in branch.conditions]
        only = self.branches[0] if len(self.branches) == 1 and not conditions else None
        object.__setattr__(self, "only", only)
        object.__setattr__(self, "nobody", NOBODY if only is None else only.name)
        object.__setattr__(self, "_by_path", any(isinstance(condition, ByPath) for condition in conditions))

    def pick(self, request: Request) -> Branch | Deny:
        """Return the branch that is responsible, or the denial if there is none."""
        if self._by_path and _AMBIGUOUS.search(request.path):
            return _UNCLEAR
        for branch in self.branches:
            if all(_holds(condition, request) for condition in branch.conditions):
                return branch
        return _NOBODY


def choice_of(backends: Backend | Choice) -> Choice:
    """Return a choice; that of a single backend leaves it every request, and calls it by its own name."""
    return backends if isinstance(backends, Choice) else Choice((Branch(backends.name, (), backends),))


_NOBODY: Final = Deny(http_status=403, rule="no backend is responsible")
_UNCLEAR: Final = Deny(http_status=400, body="The path is ambiguous.\n", rule="the path can be read in two ways")
_AMBIGUOUS: Final = re.compile(
    r"//|/\.{1,2}(?:/|\Z)|[\\;]"  # what servers merge, resolve, take for a slash, or leave out
    # Encoded slashes, percent signs, and what needs no encoding: - . 0-9 A-Z _ a-z ~
    r"|%(?:2[5def]|3[0-9b]|[46][1-9a-f]|[57][0-9ac]|5f|7e)",
    re.IGNORECASE,
)


def _holds(condition: Condition, request: Request) -> bool:
    match condition:
        case ByContext(key, value):
            return request.context.get(key) == value
        case ByHost(host):
            return _is_host(host.lower(), _without_port(request.host.lower()).removesuffix("."))
        case ByPath(prefix):
            below = prefix if prefix.endswith("/") else f"{prefix}/"
            return request.path == prefix or request.path.startswith(below)
        case _:
            assert_never(condition)


def _is_host(wanted: str, host: str) -> bool:
    # A gRPC server sends no host: then no condition on the host matches.
    return bool(host) and (host == wanted or (wanted.startswith("*.") and host.endswith(wanted[1:])))


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
