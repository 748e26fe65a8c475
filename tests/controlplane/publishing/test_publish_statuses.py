"""The statuses of a control plane in a real cluster: each change is told, and nothing else is written."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.controlplane.publishing.cluster_lab import accepting_proxy, conditions, control_plane
from tests.support.eventually import eventually
from tests.support.kubernetes.api_clients import api_client
from tests.support.kubernetes.api_objects import Object
from tests.support.kubernetes.local_cluster import Cluster

from authplane.controlplane.publishing.write_queue import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.slow]


def proxy(namespace: str, name: str, service: str = "web") -> Object:
    return {
        "apiVersion": "projectcontour.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "virtualhost": {"fqdn": f"{name}.{namespace}.example"},
            "routes": [{"services": [{"name": service, "port": 80}]}],
        },
    }


def service(namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"ports": [{"port": 80}]},
    }


def statuses_of(cluster: Cluster, namespace: str) -> list[Any]:
    return list(cluster.objects.listed("projectcontour.io/v1", "HTTPProxy", namespace)["items"])


@pytest.mark.requirement("KU-12")
async def test_a_change_is_told_and_an_idle_control_plane_writes_nothing(
    upstream_crds: Cluster, namespace: str, tmp_path: Path
) -> None:
    objects = upstream_crds.objects
    objects.create(service(namespace))
    web, bad = proxy(namespace, "web"), proxy(namespace, "bad", service="absent")
    for each in (web, bad):
        objects.create(each)
    async with control_plane(api_client(upstream_crds), namespace, tmp_path / "xds.sock") as plane:

        async def told() -> bool:
            return [conditions(objects.read(each)).get("Valid") for each in (web, bad)] == ["True", "False"]

        await eventually(told)
        found = objects.read(bad)["status"]
        assert found["currentStatus"] == "invalid"
        objects.patch(web, {"spec": {"routes": [{"services": [{"name": "web", "port": 81}]}]}})

        async def changed() -> bool:
            now = objects.read(web)
            observed = {each["observedGeneration"] for each in now["status"]["conditions"] if each["type"] == "Valid"}
            return observed == {2} and now["status"]["currentStatus"] == "invalid" and plane.counts.statuses() == 3

        await eventually(changed)
        before, versions = plane.counts.statuses(), statuses_of(upstream_crds, namespace)
        await asyncio.sleep(PATIENCE + 2)  # what happens then is nothing, of which there is no event
        assert (plane.counts.statuses(), statuses_of(upstream_crds, namespace)) == (before, versions)


@pytest.mark.requirement("KU-24", "KU-14")
async def test_the_leader_adds_up_what_the_proxies_of_all_replicas_accepted(
    upstream_crds: Cluster, namespace: str, tmp_path: Path
) -> None:
    objects, web = upstream_crds.objects, proxy(namespace, "web")
    objects.create(service(namespace))
    objects.create(web)
    sockets = [tmp_path / "a.sock", tmp_path / "b.sock"]

    async def becomes(status: str, since: float = 0.0) -> float:
        async def is_so() -> bool:
            return conditions(objects.read(web)).get("Programmed") == status

        await eventually(is_so)
        return asyncio.get_running_loop().time() - since

    async with (
        control_plane(api_client(upstream_crds), namespace, sockets[0]) as first,
        control_plane(api_client(upstream_crds), namespace, sockets[1]) as second,
    ):
        planes = [first, second]

        async def one_leads() -> bool:
            return [each.counts.leads() for each in planes].count(True) == 1

        await eventually(one_leads)
        await becomes("Unknown")
        follower = next(index for index, each in enumerate(planes) if not each.counts.leads())
        async with accepting_proxy(planes[follower], sockets[follower]):
            await becomes("True")
            before = objects.read(web)["metadata"]["resourceVersion"]
            gone = asyncio.get_running_loop().time()
        seconds = await becomes("Unknown", gone)
        assert seconds >= PATIENCE - 1
        assert int(objects.read(web)["metadata"]["resourceVersion"]) > int(before)
        assert [each.counts.statuses() for each in planes][follower] == 0


async def test_a_gateway_class_of_ours_is_accepted_and_that_of_others_left_alone(
    upstream_crds: Cluster, namespace: str, tmp_path: Path
) -> None:
    objects = upstream_crds.objects
    ours, theirs = (
        {
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": f"{namespace}-{name}"},
            "spec": {"controllerName": controller},
        }
        for name, controller in (("ours", "authplane.dev/controller"), ("theirs", "x.example/controller"))
    )
    objects.create(theirs)
    before = objects.read(theirs)
    try:
        async with control_plane(api_client(upstream_crds), namespace, tmp_path / "xds.sock"):
            objects.create(ours)

            async def accepted() -> bool:
                return conditions(objects.read(ours)).get("Accepted") == "True"

            await eventually(accepted)
            assert objects.read(theirs) == before
    finally:
        for each in (ours, theirs):
            objects.delete(each)
