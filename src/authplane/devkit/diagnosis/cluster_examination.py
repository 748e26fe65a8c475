"""What `authplane doctor --kubernetes` examines: a cluster, and what its objects rely on."""

import asyncio
from collections.abc import Mapping

from authplane.core.values import dataclass
from authplane.devkit.diagnosis.cluster_permissions import Component
from authplane.devkit.diagnosis.cluster_probes import ExaminedCluster, probe_cluster
from authplane.devkit.diagnosis.examination import Row
from authplane.runtime.kubernetes.api_client import ApiClient, ApiLimits
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import Login


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
    async with ApiClient(Credentials(plan.login), ApiLimits(total=10.0)) as client:
        examined = ExaminedCluster(
            client=client,
            lease_namespace=plan.lease_namespace,
            namespaces=plan.namespaces,
            accounts=plan.accounts,
        )
        return await probe_cluster(examined)
