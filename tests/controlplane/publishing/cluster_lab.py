"""A whole control plane in this process, with a real cluster as its source and a client in place of Envoy."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.kubernetes.api_clients import api_client
from tests.support.kubernetes.local_cluster import Cluster

from authplane.controlplane.publishing.runtime.publish_statuses import StatusPublisher
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt, Told
from authplane.controlplane.status.kubernetes.stored_objects import StoredObjects
from authplane.core.names import Ref
from authplane.runtime.run_until_stopped import first_of
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_cluster import ClusterPart, ClusterSource


@asynccontextmanager
async def control_plane(cluster: Cluster, namespace: str, socket: Path) -> AsyncGenerator[Control]:
    """Run a control plane for the objects of a namespace, which also has its Leases."""
    async with api_client(cluster) as client:
        objects = StoredObjects()

        def observe(ref: Ref, path: str, body: Mapping[str, Any] | None) -> None:
            if body is None:
                objects.drop(ref)
            else:
                objects.put(ref, path, body)
            publisher.seen(ref)

        def told(event: Told) -> None:
            if isinstance(event, Rebuilt):
                publisher.rebuilt()
            publisher.wake()

        source = ClusterSource(client, ClusterPart(namespaces=(namespace,)), observe=observe, loosen_after=0)
        plane = Control(source, told)
        publisher = StatusPublisher(plane, client, objects, namespace)
        settings = ControlSettings(address=UnixAddress(path=str(socket)))
        async with plane.serve(settings):
            running = asyncio.create_task(first_of(lambda: plane.follow(settings), publisher.follow))
            try:
                yield plane
            finally:
                running.cancel()
                await asyncio.wait([running])


def conditions(found: dict[str, Any]) -> dict[str, str]:
    """Return the conditions of an object, shortly."""
    return {each["type"]: each["status"] for each in found.get("status", {}).get("conditions", ())}
