"""A whole control plane in this process, with a real cluster as its source and a client in place of Envoy."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
from envoy.config.core.v3.base_pb2 import BuildVersion, Node
from envoy.service.discovery.v3.discovery_pb2 import DiscoveryRequest, DiscoveryResponse
from envoy.type.v3.semantic_version_pb2 import SemanticVersion

from authplane.controlplane.publishing.runtime.publish_statuses import StatusPublisher
from authplane.controlplane.serving.runtime.ads import SERVICE
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Rebuilt, Told
from authplane.controlplane.status.kubernetes.stored_objects import StoredObjects
from authplane.core.names import Ref
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.run_until_stopped import first_of
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_cluster import ClusterPart, ClusterSource
from authplane.xds.server.served_types import TypeUrl


@asynccontextmanager
async def control_plane(connection: ApiClient, namespace: str, socket: Path) -> AsyncGenerator[Control]:
    """Run a control plane for the objects of a namespace, which also has its Leases."""
    async with connection as client:
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


@asynccontextmanager
async def accepting_proxy(plane: Control, socket: Path) -> AsyncGenerator[None]:
    """Connect as an Envoy that accepts whatever comes."""
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call: Any = channel.stream_stream(f"/{SERVICE}/StreamAggregatedResources")()
        accepting = asyncio.create_task(_accept(plane, call))
        try:
            yield
        finally:
            accepting.cancel()
            call.cancel()


async def _accept(plane: Control, call: Any) -> None:
    version = BuildVersion(version=SemanticVersion(major_number=1, minor_number=39))
    node = Node(id="edge", user_agent_name="envoy", user_agent_build_version=version)
    for kind in (TypeUrl.CLUSTER, TypeUrl.LISTENER):
        await call.write(DiscoveryRequest(node=node, type_url=kind).SerializeToString())
    while True:
        answer = DiscoveryResponse.FromString(await call.read())
        kind = TypeUrl(answer.type_url)
        assert plane.generation is not None
        await call.write(_request(plane, kind, answer).SerializeToString())
        below = {TypeUrl.CLUSTER: TypeUrl.ENDPOINT, TypeUrl.LISTENER: TypeUrl.ROUTE}.get(kind)
        if below is not None:
            await call.write(_request(plane, below).SerializeToString())


def _request(plane: Control, kind: TypeUrl, answer: DiscoveryResponse | None = None) -> DiscoveryRequest:
    assert plane.generation is not None
    wild = kind in {TypeUrl.CLUSTER, TypeUrl.LISTENER}
    names = () if wild else tuple(plane.generation.snapshot.resources(kind))
    asked = DiscoveryRequest(type_url=kind, resource_names=names)
    if answer is not None:
        asked.version_info, asked.response_nonce = answer.version_info, answer.nonce
    return asked
