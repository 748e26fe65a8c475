"""Replicas as programs, at a real API server: one ends or is suspended, another goes on, and they never fight."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.controlplane.publishing.status_lab import LEASE
from tests.controlplane.publishing.test_publish_statuses import proxy, service
from tests.support.eventually import START_LIMIT, eventually
from tests.support.kubernetes.api_objects import Object
from tests.support.kubernetes.local_cluster import Cluster

from authplane.runtime.child_processes import Child, Line, run_process

pytestmark = [pytest.mark.real, pytest.mark.slow]

FAILOVER = 15.0


class Replica:
    """A program, and what it last said."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.child: Child | None = None

    async def sink(self, line: Line) -> None:
        self.lines.append(line.text)

    def signal(self, number: signal.Signals) -> None:
        assert self.child is not None
        os.kill(self.child.pid, number)

    @property
    def said(self) -> str:
        return next((each for each in reversed(self.lines) if each.startswith("written=")), "")

    @property
    def written(self) -> int:
        found = re.search(r"written=(\d+)", self.said)
        return int(found[1]) if found else 0

    async def wrote(self, count: int) -> None:
        async def holds() -> bool:
            return self.written >= count

        await eventually(holds)

    async def leads(self, *, leads: bool = True) -> None:
        async def holds() -> bool:
            return self.said.endswith(f"leads={leads}")

        await eventually(holds, limit=START_LIMIT)


@asynccontextmanager
async def replica(cluster: Cluster, namespace: str, socket: Path) -> AsyncGenerator[Replica]:
    made = Replica()
    argv = [sys.executable, "-m", "tests.controlplane.publishing.replica_program"]
    argv += [str(cluster.kubeconfig), namespace, str(socket)]
    async with run_process(argv, sink=made.sink, grace=5) as made.child:
        yield made


class Objects:
    """One HTTPProxy that changes, and how soon its status follows."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._objects, self._namespace = cluster.objects, namespace
        self._web = proxy(namespace, "web")
        self._objects.create(service(namespace))
        self._objects.create(self._web)

    def read(self) -> Object:
        return self._objects.read(self._web)

    def holder(self) -> str:
        lease = self._objects.get("coordination.k8s.io/v1", "Lease", LEASE, self._namespace)
        found: str = lease["spec"]["holderIdentity"]
        return found

    async def change(self) -> float:
        """Change the object; return the seconds until its status says so."""
        begun = asyncio.get_running_loop().time()
        generation = self.read()["metadata"]["generation"] + 1
        prefix = f"/{generation}"
        services = [{"name": "web", "port": 80}]
        self._objects.patch(
            self._web, {"spec": {"routes": [{"conditions": [{"prefix": prefix}], "services": services}]}}
        )
        await self.told(generation)
        return asyncio.get_running_loop().time() - begun

    async def told(self, generation: int) -> None:
        async def holds() -> bool:
            status = self.read().get("status", {}).get("conditions", ())
            return [each.get("observedGeneration") for each in status if each["type"] == "Valid"] == [generation]

        await eventually(holds, limit=START_LIMIT)


@pytest.mark.requirement("KU-25", "KU-26", "KU-21")
async def test_a_suspended_leader_writes_nothing_later_and_a_killed_one_is_replaced(
    upstream_crds: Cluster, namespace: str, tmp_path: Path
) -> None:
    objects = Objects(upstream_crds, namespace)
    async with replica(upstream_crds, namespace, tmp_path / "a") as first:
        await first.leads()
        await objects.told(1)
        async with replica(upstream_crds, namespace, tmp_path / "b") as second:
            await second.leads(leads=False)
            leader = objects.holder()
            before = first.written
            first.signal(signal.SIGSTOP)
            assert await objects.change() < FAILOVER
            assert objects.holder() != leader
            version = objects.read()["metadata"]["resourceVersion"]
            first.signal(signal.SIGCONT)
            await first.leads(leads=False)
            assert first.written == before, "it saw the change, and had led when it was suspended"
            assert objects.read()["metadata"]["resourceVersion"] == version
            await second.wrote(1)
            written = second.written
            await objects.change()
            await second.wrote(written + 1)
            assert first.written == before
            second.signal(signal.SIGKILL)
            assert await objects.change() < FAILOVER
            await first.leads()


@pytest.mark.requirement("KU-25")
async def test_a_leader_that_is_stopped_gives_up_its_lease_at_once(
    upstream_crds: Cluster, namespace: str, tmp_path: Path
) -> None:
    objects = Objects(upstream_crds, namespace)
    async with replica(upstream_crds, namespace, tmp_path / "a") as first:
        await first.leads()
        async with replica(upstream_crds, namespace, tmp_path / "b") as second:
            await second.leads(leads=False)
            first.signal(signal.SIGTERM)
            assert first.child is not None
            await first.child.ended()
            assert await objects.change() < FAILOVER / 2
            await second.wrote(1)
