"""From a change to its status, with as many HTTPProxies as large clusters have."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from tests.controlplane.publishing.cluster_lab import accepting_proxy, control_plane
from tests.controlplane.publishing.test_publish_statuses import proxy, service
from tests.support.eventually import START_LIMIT, eventually
from tests.support.kubernetes.api_clients import api_client
from tests.support.kubernetes.api_objects import Object
from tests.support.kubernetes.local_cluster import Cluster
from tests.support.timing import slowness

pytestmark = [pytest.mark.real, pytest.mark.slow]

MANY = 1500
CHANGES = 25
LIMIT = 1.0


async def _settled(count: Callable[[], int]) -> None:
    """Wait until all objects have a status, and nothing is written any more."""
    seen = -1

    async def quiet() -> bool:
        nonlocal seen
        before, seen = seen, count()
        await asyncio.sleep(1.0)
        return seen >= MANY and seen == before == count()

    await eventually(quiet, limit=4 * START_LIMIT)


@pytest.mark.requirement("KU-16", "KU-12")
async def test_a_change_among_many_has_its_status_within_a_second_and_costs_one_write(
    upstream_crds: Cluster, namespace: str, tmp_path: Path
) -> None:
    objects, socket = upstream_crds.objects, tmp_path / "xds.sock"
    objects.create(service(namespace))
    names = [f"p{index}" for index in range(MANY)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: objects.create(proxy(namespace, name)), names))
    async with (
        control_plane(api_client(upstream_crds), namespace, socket) as plane,
        accepting_proxy(plane, socket),
    ):

        async def programmed(document: Object, generation: int) -> bool:
            found = await asyncio.to_thread(objects.read, document)
            conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
            last = conditions.get("Programmed", {})
            return (last.get("status"), last.get("observedGeneration")) == ("True", generation)

        last = proxy(namespace, names[-1])
        await eventually(partial(programmed, last, 1), limit=2 * START_LIMIT)
        await _settled(plane.counts.statuses)
        took, before = [], plane.counts.statuses()
        for name in names[:CHANGES]:
            document = proxy(namespace, name)
            change = {"conditions": [{"prefix": "/changed"}], "services": [{"name": "web", "port": 80}]}
            objects.patch(document, {"spec": {"routes": [change]}})
            begun, slow = time.monotonic(), slowness()
            await eventually(partial(programmed, document, 2))
            took.append((time.monotonic() - begun) / max(slow, slowness()))
        assert max(took) < LIMIT, sorted(took)
        # Now and then a proxy answers in two steps.
        assert CHANGES <= plane.counts.statuses() - before <= 2 * CHANGES
