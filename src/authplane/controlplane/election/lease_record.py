"""Leases of coordination.k8s.io/v1, as far as they are used here."""

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from authplane.core.values import dataclass

LABEL: Final = "authplane.dev/lease"
"""The label of all Leases of control planes; its value says what a Lease is for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A Lease, stored or to be stored."""

    holder: str
    """Empty if it was released."""
    duration: int
    acquired: str
    """The time of the holder's clock, as text: it is for people, and never compared."""
    renewed: str
    transitions: int = 0
    resource_version: str = ""
    """Empty for a Lease that does not exist yet; otherwise the precondition of a write."""
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def parse_lease(body: Mapping[str, Any]) -> Lease:
    """Read a Lease of the API server; what is missing counts as empty."""
    metadata, spec = _mapping(body.get("metadata")), _mapping(body.get("spec"))
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    annotations = _mapping(metadata.get("annotations"))
    return Lease(
        holder=str(spec.get("holderIdentity") or ""),
        duration=duration if isinstance(duration, int) else 0,
        acquired=str(spec.get("acquireTime") or ""),
        renewed=str(spec.get("renewTime") or ""),
        transitions=transitions if isinstance(transitions, int) else 0,
        resource_version=str(metadata.get("resourceVersion") or ""),
        uid=str(metadata.get("uid") or ""),
        annotations={str(name): str(value) for name, value in annotations.items()},
    )


def lease_body(lease: Lease, namespace: str, name: str, purpose: str) -> dict[str, Any]:
    """Return a Lease as the API server takes it."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": {LABEL: purpose}}
    if lease.annotations:
        metadata["annotations"] = dict(lease.annotations)
    if lease.resource_version:
        metadata |= {"resourceVersion": lease.resource_version, "uid": lease.uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {
            "holderIdentity": lease.holder,
            "leaseDurationSeconds": lease.duration,
            "acquireTime": lease.acquired,
            "renewTime": lease.renewed,
            "leaseTransitions": lease.transitions,
        },
    }


def lease_time(time: datetime) -> str:
    """Return a time as Leases have it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
