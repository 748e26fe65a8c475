"""Replicas at a real API server: one leads, another follows at once when it steps down."""

import pytest
from tests.controlplane.publishing.status_lab import LEASE, Lab, running
from tests.support.eventually import eventually
from tests.support.kubernetes.local_cluster import Cluster

pytestmark = pytest.mark.real


def holder(cluster: Cluster, namespace: str) -> str:
    found: str = cluster.objects.get("coordination.k8s.io/v1", "Lease", LEASE, namespace)["spec"]["holderIdentity"]
    return found


@pytest.mark.requirement("KU-20")
async def test_one_replica_leads_and_gives_the_lease_up_when_it_stops(cluster: Cluster, namespace: str) -> None:
    first, second = Lab(cluster, namespace, "a"), Lab(cluster, namespace, "b")

    async def taken() -> bool:
        return second.leadership.leads()

    async with running(second, leading=False):
        async with running(first, leading=False):

            async def one() -> bool:
                return first.leadership.leads() != second.leadership.leads()

            await eventually(one)
            leader = "a" if first.leadership.leads() else "b"
            assert holder(cluster, namespace) == leader
            assert 0 < max(first.leadership.seconds_left(), second.leadership.seconds_left()) <= 6
        await eventually(taken)
        assert holder(cluster, namespace) == "b"
    assert holder(cluster, namespace) == ""
    assert not second.leadership.leads()
