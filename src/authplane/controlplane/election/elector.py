"""The election of the replica that writes statuses, as a state machine without I/O.

A replica never compares the clock of another with its own. It notes when it saw a Lease change; a Lease that has not
changed for its duration, by the replica's own monotonic clock, has ended. A leader counts from the moment at which it
*began* its last successful renewal. Others can see that renewal only later, so the leader stops first.
"""

from dataclasses import replace
from typing import Final, TypeAlias

from authplane.controlplane.election.lease_record import Lease
from authplane.core.values import dataclass

Sight: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The durations of an election, in seconds."""

    duration: int = 10
    """How long others wait for a leader that is silent."""
    renew_within: float = 6.0
    """A leader that could not renew its Lease for so long stops writing."""
    retry: float = 2.0
    """The time between attempts to get or to renew the Lease."""


TIMING: Final = Timing()


class Elector:
    """One replica's part in the election."""

    def __init__(self, identity: str, timing: Timing = TIMING) -> None:
        self.identity: Final = identity
        self._timing = timing
        self._lease: Lease | None = None
        self._known = False
        """Whether the Lease was read since the last doubt about it."""
        self._seen: tuple[Sight, float] | None = None
        self._renewed_at: float | None = None

    def leads_until(self) -> float | None:
        """Return until when this replica may write, by its clock; None if it does not lead."""
        return None if self._renewed_at is None else self._renewed_at + self._timing.renew_within

    def leads(self, now: float) -> bool:
        """Tell whether this replica may write now."""
        until = self.leads_until()
        return until is not None and now < until

    @property
    def must_read(self) -> bool:
        """Whether the Lease must be read before the next attempt; a leader knows its own."""
        return not (self._known and self._lease is not None and self._lease.holder == self.identity)

    def observed(self, lease: Lease | None, now: float) -> None:
        """Take the Lease as the API server has it; None if there is none."""
        self._lease, self._known = lease, True
        if lease is None or lease.holder != self.identity:
            self._renewed_at = None
        if lease is None:
            self._seen = None
            return
        sight = (lease.holder, lease.renewed, lease.transitions)
        if self._seen is None or self._seen[0] != sight:
            self._seen = (sight, now)

    def attempt(self, now: float, time: str) -> Lease | None:
        """Return the Lease to write, if this replica may have it; ``time`` is the time of day for people."""
        lease = self._lease
        mine = Lease(holder=self.identity, duration=self._timing.duration, acquired=time, renewed=time)
        if lease is None:
            return mine if self._known else None
        if lease.holder == self.identity:
            return replace(lease, duration=self._timing.duration, renewed=time)
        if lease.holder and now < self._ends(lease):
            return None
        return replace(mine, transitions=lease.transitions + 1, resource_version=lease.resource_version, uid=lease.uid)

    def written(self, lease: Lease, began: float) -> None:
        """Take the Lease that the API server stored for us; ``began`` is when the request began."""
        self._lease, self._known = lease, True
        self._seen = ((lease.holder, lease.renewed, lease.transitions), began)
        self._renewed_at = began if lease.holder == self.identity else None

    def failed(self) -> None:
        """Note that a write was refused or has no answer: the Lease must be read again. A leader leads on for now."""
        self._known = False

    def release(self, time: str) -> Lease | None:
        """Stop leading at once; return the Lease to write so that another replica need not wait."""
        lease, self._renewed_at = self._lease, None
        if lease is None or lease.holder != self.identity:
            return None
        return replace(lease, holder="", duration=1, renewed=time)

    def wait(self, now: float) -> float:
        """Return the seconds until the next attempt."""
        lease, retry = self._lease, self._timing.retry
        if lease is None or lease.holder in {"", self.identity}:
            return retry
        return max(0.0, min(retry, self._ends(lease) - now))

    def _ends(self, lease: Lease) -> float:
        since = self._seen[1] if self._seen is not None else float("inf")
        return since + max(lease.duration, self._timing.duration)
