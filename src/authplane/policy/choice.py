"""Several backends behind one door."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, TypeAlias, assert_never

from authplane.policy.decision import Decision, Deny
from authplane.policy.engine import Backend
from authplane.policy.flow import Flow
from authplane.policy.request import Request


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
    """A backend, and when it is asked: all conditions hold."""

    conditions: tuple[Condition, ...]
    backend: Backend


@dataclass(frozen=True, slots=True)
class Choice:
    """Asks the backend of the first branch that fits; a request that fits none is denied."""

    name: ClassVar = "choice"

    branches: Sequence[Branch]

    def decide(self, request: Request, now: datetime) -> Decision | Flow:
        """Judge by the backend that is responsible."""
        for branch in self.branches:
            if all(_holds(condition, request) for condition in branch.conditions):
                return branch.backend.decide(request, now)
        return Deny(http_status=403, rule="no backend is responsible")


def _holds(condition: Condition, request: Request) -> bool:
    match condition:
        case ByContext(key, value):
            return request.context.get(key) == value
        case ByHost(host):
            return _is_host(host.lower(), _without_port(request.host.lower()))
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
