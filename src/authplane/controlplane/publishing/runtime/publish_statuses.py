"""Publishes the statuses of a control plane in the cluster that it reads."""

import asyncio
import os
import random
import socket
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from typing import Final, Protocol

import structlog

from authplane.controlplane.election.acknowledgements import Report, add_up
from authplane.controlplane.graph.model.programming import Programming, without_filters
from authplane.controlplane.publishing.runtime.event_writer import EventWriter
from authplane.controlplane.publishing.runtime.leadership import Leadership
from authplane.controlplane.publishing.runtime.lease_api import LeaseApi
from authplane.controlplane.publishing.runtime.replica_lease import ReplicaLease
from authplane.controlplane.publishing.runtime.status_writer import StatusWriter
from authplane.controlplane.publishing.write_queue import WriteQueue
from authplane.controlplane.serving.generation import Generation
from authplane.controlplane.serving.runtime.control_counts import ControlCounts
from authplane.controlplane.status.kubernetes.gateway_classes import KIND, class_statuses
from authplane.controlplane.status.kubernetes.stored_objects import StoredObjects
from authplane.controlplane.status.resource_status import Status
from authplane.core.envoy_releases import Release
from authplane.core.names import Ref
from authplane.runtime.child_processes import place_of
from authplane.runtime.clock import uptime
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.xds.server.served_types import TypeUrl, XdsName

log: Final = structlog.stdlib.get_logger()

_GATHER: Final = 0.05
"""Seconds in which changes are gathered: a proxy acknowledges several types at once."""
_AFTER_A_FAULT: Final = 5.0


class Plane(Protocol):
    """A control plane whose statuses are published."""

    generation: Generation | None
    keeps_times: bool
    """Whether it notes the times of transitions itself; otherwise those in the API server count."""

    @property
    def counts(self) -> ControlCounts:
        """The counters of its metrics."""

    @property
    def programming(self) -> Programming:
        """The answers of the connected proxies."""

    @property
    def oldest(self) -> Release | None:
        """The oldest release of Envoy that is connected."""

    def status(self, generation: Generation, programming: Programming, oldest: Release | None) -> tuple[Status, ...]:
        """Return the status of every resource, with these answers of proxies."""


class StatusPublisher:
    """Writes the statuses of a control plane, if this replica leads, and tells the leader about its proxies."""

    def __init__(self, plane: Plane, client: ApiClient, objects: StoredObjects, namespace: str) -> None:
        identity = _identity()
        self._plane = plane
        self._objects = objects
        self._generations: dict[Ref, int] = {}
        self._news = asyncio.Event()
        self._led = False
        self._queue = WriteQueue(objects)
        self._leadership = Leadership(LeaseApi(client, namespace, "leader"), identity, self.wake)
        replicas = LeaseApi(client, namespace, "replica")
        self._replica = ReplicaLease(replicas, identity, self._leadership.leads, self.wake)
        self._events = EventWriter(client, identity)
        self._writer = StatusWriter(client, self._queue, self._leadership, self._events.add)
        plane.counts.statuses = self._writer.written
        plane.keeps_times = False
        plane.counts.leads = self._leadership.leads

    def wake(self) -> None:
        """Note that statuses may have changed."""
        self._news.set()

    def rebuilt(self) -> None:
        """Note that the control plane has read all objects as they are known now."""
        self._generations = dict(self._objects.generations())
        self.wake()

    def seen(self, ref: Ref) -> None:
        """Note that the API server has another version of an object, or none any more."""
        if ref.kind == KIND:
            self.wake()
        self._queue.seen(ref)
        self._writer.wake()

    async def follow(self) -> None:
        """Publish until cancelled, then step down. A fault of ours is logged, and does not end what serves."""
        parts: tuple[Callable[[], Coroutine[None, None, None]], ...] = (
            self._leadership.follow,
            self._replica.follow,
            self._replica.watch,
            self._writer.follow,
            self._events.follow,
            self._compute,
        )
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(_kept(part))

    async def _compute(self) -> None:
        while True:
            await self._wait()
            self._news.clear()
            await asyncio.sleep(_GATHER)
            began = uptime()
            if self._plane.generation is not None:
                self._offer(self._plane.generation)
            # What takes long is done less often, so that it cannot delay the proxies.
            await asyncio.sleep(uptime() - began)

    async def _wait(self) -> None:
        due = self._queue.due()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - uptime())):
                await self._news.wait()
        except TimeoutError:
            self._queue.revise(uptime())
            self._writer.wake()

    def _offer(self, generation: Generation) -> None:
        snapshot = generation.snapshot
        own = Report(
            programming=self._plane.programming,
            versions={each: snapshot.collection(each).version for each in TypeUrl},
            oldest=self._plane.oldest,
        )
        self._replica.report(own)
        leads, led = self._leadership.leads(), self._led
        self._led = leads
        if not leads:
            return

        def names(kind: TypeUrl) -> frozenset[XdsName]:
            return frozenset(without_filters((kind, name)) for name in snapshot.resources(kind))

        moment = uptime()
        total = add_up(own, self._replica.replicas.reports(moment), names)
        statuses = self._plane.status(generation, total.programming, total.oldest)
        self._queue.offer((*self._as_seen(statuses, generation), *class_statuses(self._objects)), moment)
        if not led:
            self._queue.start_again(moment)
        self._writer.wake()

    def _as_seen(self, statuses: Iterable[Status], generation: Generation) -> Iterable[Status]:
        """Say of objects that cannot be used which generation of them was read: an earlier one is in force, or none."""
        unusable = generation.loaded.last_good | generation.loaded.resources.broken
        for status in statuses:
            seen = self._generations.get(status.ref) if status.ref in unusable else None
            yield status if seen is None else replace(status, generation=seen)


async def _kept(part: Callable[[], Coroutine[None, None, None]]) -> None:
    while True:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 (a fault of ours must not end what serves)
            log.error("failed to publish statuses; trying again", error=place_of(error))  # noqa: TRY400 (the message may quote a document)
        await asyncio.sleep(_AFTER_A_FAULT)


def _identity() -> str:
    """Name this process: the name of the Pod is its host name, and a restarted one is another holder."""
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}_{random.SystemRandom().getrandbits(64):016x}"
