"""The replicas of a control plane, as the leader sees them by their Leases."""

from collections.abc import Iterable, Mapping
from typing import Final

from authplane.controlplane.election.acknowledgements import ANNOTATION, Report, parse_report
from authplane.controlplane.election.lease_record import Lease

FORGOTTEN: Final = 60.0
"""Seconds after which the Lease of a replica that is gone is removed."""


class Replicas:
    """Notes when the Leases of other replicas change, by the own monotonic clock."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._seen: dict[str, tuple[Lease, float]] = {}

    def observed(self, leases: Mapping[str, Lease], now: float) -> None:
        """Take all Leases of replicas, by name."""
        before, self._seen = self._seen, {}
        for name, lease in leases.items():
            known = before.get(name)
            same = known is not None and (known[0].holder, known[0].renewed) == (lease.holder, lease.renewed)
            self._seen[name] = (lease, known[1] if known is not None and same else now)

    def reports(self, now: float) -> Iterable[Report]:
        """Return what other replicas report, as far as their Leases have not ended."""
        for lease, since in self._seen.values():
            if lease.holder in {"", self._identity} or now >= since + lease.duration:
                continue
            report = parse_report(lease.annotations.get(ANNOTATION, ""))
            if report is not None:
                yield report

    def gone(self, now: float) -> Mapping[str, Lease]:
        """Return the Leases, by name, of replicas that have been gone for long."""
        return {
            name: lease
            for name, (lease, since) in self._seen.items()
            if lease.holder != self._identity and now >= since + FORGOTTEN
        }
