"""What `authplane doctor --kubernetes` examines: a cluster, and what its objects rely on."""

import asyncio
from collections.abc import Mapping
from typing import Final

from authplane.controlplane.serving.generation import build_generation
from authplane.core.values import dataclass
from authplane.devkit.diagnosis.cluster_permissions import Component
from authplane.devkit.diagnosis.cluster_probes import ExaminedCluster, probe_cluster
from authplane.devkit.diagnosis.examination import Examined, Outcome, Row, examine_all
from authplane.devkit.diagnosis.probes import CLUSTER_PROBES
from authplane.runtime.kubernetes.api_client import ApiClient, ApiLimits
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import Login
from authplane.sources.runtime.read_cluster import ClusterError, ClusterPart, read_once

_LONGEST: Final = 60.0
"""Seconds that reading all objects may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """The options of the command."""

    login: Login
    lease_namespace: str
    namespaces: tuple[str, ...]
    accounts: Mapping[Component, str]
    allow_private_issuers: bool


def examine_cluster(plan: ClusterPlan) -> tuple[Row, ...]:
    """Examine a cluster; it must not be called where an event loop runs."""
    return asyncio.run(_examine(plan))


async def _examine(plan: ClusterPlan) -> tuple[Row, ...]:
    rows = await _of_cluster(plan)
    if [row.outcome for row in rows] == [Outcome.FINDING]:
        return rows  # the API server does not answer
    return (*rows, *await _of_objects(plan))


async def _of_objects(plan: ClusterPlan) -> tuple[Row, ...]:
    """Read the objects as the control plane does, and try what they rely on."""
    try:
        async with ApiClient(Credentials(plan.login)) as client:
            loaded = await read_once(client, ClusterPart(namespaces=plan.namespaces), limit=_LONGEST)
    except ClusterError as error:
        message, _, remedy = str(error).rpartition(". ")
        return (
            Row(
                probe="documents",
                subject=plan.login.server,
                outcome=Outcome.FINDING,
                message=f"{message}.",
                remedy=remedy,
            ),
        )
    examined = Examined(
        generation=build_generation(loaded), in_cluster=True, allow_private_issuers=plan.allow_private_issuers
    )
    return await examine_all(examined, CLUSTER_PROBES)


async def _of_cluster(plan: ClusterPlan) -> tuple[Row, ...]:
    async with ApiClient(Credentials(plan.login), ApiLimits(total=10.0)) as client:
        examined = ExaminedCluster(
            client=client,
            lease_namespace=plan.lease_namespace,
            namespaces=plan.namespaces,
            accounts=plan.accounts,
        )
        return await probe_cluster(examined)
