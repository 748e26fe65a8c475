"""Several backends behind one door."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, TypeAlias, assert_never

from authplane.authserver.engine.check_engine import Backend
from authplane.policy.check.decision import Decision, Deny
from authplane.policy.check.request import Request
from authplane.policy.verdicts.effects import Flow


@dataclass(frozen=True, slots=True)
class ByContext:
    """Requests whose route has this entry in its context: the operator's word, which no client can change."""

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
    """A backend, what it is called here, and when it is asked: all conditions hold."""

    name: str
    conditions: tuple[Condition, ...]
    backend: Backend


@dataclass(frozen=True, slots=True)
class Choice:
    """Asks the backend of the first branch that fits; a request that fits none is denied.

    Where a branch is chosen by path, so is a request whose path can be read in two ways: the origin might find another
    place than the one that it was judged by.
    """

    name: ClassVar = "choice"

    branches: Sequence[Branch]
    by_path: bool = field(init=False)
    """Whether paths matter."""

    def __post_init__(self) -> None:
        conditions = (condition for branch in self.branches for condition in branch.conditions)
        object.__setattr__(self, "by_path", any(isinstance(condition, ByPath) for condition in conditions))

    def pick(self, request: Request) -> Branch | Deny:
        """Return the branch that is responsible, or the denial if there is none."""
        if self.by_path and _AMBIGUOUS.search(request.path):
            return _UNCLEAR
        for branch in self.branches:
            if all(_holds(condition, request) for condition in branch.conditions):
                return branch
        return _NOBODY

    def decide(self, request: Request, now: datetime) -> Decision | Flow:
        """Judge by the backend that is responsible."""
        picked = self.pick(request)
        return picked if isinstance(picked, Deny) else picked.backend.decide(request, now)


_NOBODY: Final = Deny(http_status=403, rule="no backend is responsible")
_UNCLEAR: Final = Deny(
    http_status=400, body="The path can be read in two ways.\n", rule="the path can be read in two ways"
)
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
    # A gRPC service names no host: then no condition on it holds.
    return bool(host) and (host == wanted or (wanted.startswith("*.") and host.endswith(wanted[1:])))


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
