"""A writer of statuses at a real API server, with statuses that a test invents."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.support.eventually import LIMIT, eventually
from tests.support.kubernetes.api_clients import api_client
from tests.support.kubernetes.api_objects import Object
from tests.support.kubernetes.local_cluster import Cluster

from authplane.controlplane.publishing.runtime.event_writer import EventWriter
from authplane.controlplane.publishing.runtime.leadership import LEASE, Leadership
from authplane.controlplane.publishing.runtime.lease_api import LeaseApi
from authplane.controlplane.publishing.runtime.status_writer import StatusWriter
from authplane.controlplane.publishing.write_queue import WriteQueue
from authplane.controlplane.status.kubernetes.stored_objects import StoredObjects
from authplane.controlplane.status.resource_status import Status
from authplane.core.names import Ref
from authplane.runtime.clock import uptime

__all__ = ["LEASE", "LIMIT", "Lab", "running", "spec_of"]

_SPECS: Final[dict[str, tuple[str, Object]]] = {
    "HTTPProxy": ("projectcontour.io/v1", {"virtualhost": {"fqdn": "a.example"}, "routes": []}),
    "XAccessPolicy": (
        "agentic.networking.x-k8s.io/v1alpha1",
        {
            "targetRefs": [{"group": "agentic.networking.x-k8s.io", "kind": "XBackend", "name": "b"}],
            "action": "Allow",
            "rules": [{"name": "r", "source": {"type": "ServiceAccount", "serviceAccount": {"name": "x"}}}],
        },
    ),
    "HTTPRoute": ("gateway.networking.k8s.io/v1", {"parentRefs": [{"name": "edge"}]}),
    "Gateway": (
        "gateway.networking.k8s.io/v1",
        {"gatewayClassName": "authplane", "listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}]},
    ),
}


def spec_of(ref: Ref) -> Object:
    """Return an object of a kind."""
    version, spec = _SPECS[ref.kind]
    metadata = {"name": ref.name, "namespace": ref.namespace}
    return {"apiVersion": version, "kind": ref.kind, "metadata": metadata, "spec": spec}


class Lab:
    """One replica: its queue, writer and leadership."""

    def __init__(self, cluster: Cluster, namespace: str, identity: str, token: str = "") -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.client = api_client(cluster, token)
        self.stored = StoredObjects()
        self.queue = WriteQueue(self.stored)
        self.leadership = Leadership(LeaseApi(self.client, namespace, "leader"), identity, self.wake)
        self.events = EventWriter(self.client, identity)
        self.writer = StatusWriter(self.client, self.queue, self.leadership, self.events.add)

    def wake(self) -> None:
        """Do what the publisher does when the leadership changes."""
        self.writer.wake()

    def see(self, ref: Ref) -> Object:
        """Read an object, as a watch would show it."""
        document = spec_of(ref)
        body = self.cluster.objects.read(document)
        self.stored.put(ref, self.cluster.objects.path(document), body)
        self.queue.seen(ref)
        self.writer.wake()
        return body

    def create(self, ref: Ref) -> Object:
        """Create an object, and see it."""
        self.cluster.objects.create(spec_of(ref))
        return self.see(ref)

    def status(self, ref: Ref) -> Any:
        """Return the status that the API server has."""
        return self.cluster.objects.read(spec_of(ref)).get("status", {})

    async def publish(self, *statuses: Status) -> None:
        """Offer statuses, and wait until everything is written that will be."""
        self.queue.offer(statuses, uptime())
        self.writer.wake()
        await self.idle()

    async def idle(self) -> None:
        """Wait until the queue is empty."""

        async def empty() -> bool:
            return not len(self.queue)

        await eventually(empty)

    def seen_events(self) -> Sequence[Object]:
        """Return the Events of the namespace."""
        found = self.cluster.objects.listed("events.k8s.io/v1", "Event", self.namespace)["items"]
        return [each for each in found if each.get("reportingController") == "authplane.dev/controller"]


@asynccontextmanager
async def running(lab: Lab, *, leading: bool = True) -> AsyncGenerator[Lab]:
    """Run a replica while the block runs; by default it leads."""
    async with lab.client:
        parts = (lab.leadership.follow, lab.writer.follow, lab.events.follow)
        tasks = [asyncio.create_task(part()) for part in parts]
        try:
            if leading:

                async def leads() -> bool:
                    return lab.leadership.leads()

                await eventually(leads)
            yield lab
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=LIMIT)
