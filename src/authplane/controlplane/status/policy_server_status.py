"""The status of the connection to the policy server, as the control plane probes it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final

from authplane.controlplane.status.resource_status import Condition, Status
from authplane.core.names import Ref
from authplane.core.values import dataclass

_TYPE: Final = "PolicyServerReady"


class Trial(Enum):
    """How an attempt to connect ended."""

    ACCEPTED = "accepted"
    UNREACHABLE = "unreachable"
    HANDSHAKE = "handshake"
    """One side refused the other's certificate, or the server speaks something else."""
    NOT_TRIED = "not tried"
    """The files that it takes are on another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One address of the policy server."""

    address: str
    trial: Trial
    why: str = ""
    remedy: str = ""


def policy_server_condition(tried: Sequence[Tried]) -> Condition:
    """Say whether the policy server accepts connections at all of its addresses."""
    message = " ".join(map(_words, tried))
    trials = {each.trial for each in tried}
    if Trial.HANDSHAKE in trials:
        return Condition(type=_TYPE, status="False", reason="HandshakeFailed", message=message)
    if Trial.UNREACHABLE in trials:
        return Condition(type=_TYPE, status="False", reason="Unreachable", message=message)
    if Trial.NOT_TRIED in trials:
        return Condition(type=_TYPE, status="Unknown", reason="NotTried", message=message)
    return Condition(type=_TYPE, status="True", reason="AcceptsConnections", message=message)


def _words(tried: Tried) -> str:
    if not tried.why:
        return f"{tried.address} accepts connections."
    return f"{tried.address}: {tried.why}. {tried.remedy}".rstrip()


def with_policy_server(statuses: Iterable[Status], ref: Ref, tried: Sequence[Tried]) -> tuple[Status, ...]:
    """Add to the status of the configuration what was tried; nothing if nothing was."""
    if not tried:
        return tuple(statuses)
    condition = policy_server_condition(tried)
    return tuple(
        replace(each, conditions=(*each.conditions, condition)) if each.ref == ref else each for each in statuses
    )
