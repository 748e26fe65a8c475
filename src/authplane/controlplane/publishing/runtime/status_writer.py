"""Writes statuses to the API server, several at a time, while this replica leads."""

import asyncio
import json
import random
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, TypeAlias

import structlog

from authplane.controlplane.publishing.runtime.leadership import Leadership
from authplane.controlplane.publishing.write_queue import WriteQueue
from authplane.controlplane.status.kubernetes.status_writes import (
    StatusWrite,
    Transition,
    build_withdrawal,
    build_write,
)
from authplane.controlplane.status.kubernetes.stored_objects import StoredObject, parse_stored
from authplane.controlplane.status.resource_status import Status
from authplane.core.backoff import backoff_delay
from authplane.core.names import Ref
from authplane.runtime.clock import now, uptime
from authplane.runtime.kubernetes.api_answers import answer_fault
from authplane.runtime.kubernetes.api_client import ApiClient, ApiUnreachableError

log: Final = structlog.stdlib.get_logger()

_AT_A_TIME: Final = 8
_ATTEMPTS: Final = 5
"""How often a write is repeated at once when other clients write the same object."""
_LONGEST_PAUSE: Final = 60.0


Emit: TypeAlias = Callable[[Iterable[Transition], StoredObject], None]
"""Takes the transitions of an object that were written."""


class StatusWriter:
    """Brings the statuses of objects to what the queue wants."""

    def __init__(
        self,
        client: ApiClient,
        queue: WriteQueue,
        leadership: Leadership,
        emit: Emit,
    ) -> None:
        self._client = client
        self._queue = queue
        self._leadership = leadership
        self._emit = emit
        self._news = asyncio.Event()
        self._failures: dict[Ref, int] = {}
        self._faults: dict[str, str] = {}
        self._written = 0

    def written(self) -> int:
        """Return how many statuses were written."""
        return self._written

    def wake(self) -> None:
        """Look at the queue: there may be something to write."""
        self._news.set()

    async def follow(self) -> None:
        """Write statuses as they change, for ever."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_A_TIME):
                tasks.create_task(self._work())

    async def _work(self) -> None:
        while True:
            ref = self._queue.take() if self._leadership.leads() else None
            if ref is None:
                self._news.clear()
                await self._news.wait()
                continue
            try:
                await self._publish(ref)
            finally:
                self._queue.finish(ref)
                # Another worker may have passed over the object, because this one had it.
                self._news.set()

    async def _publish(self, ref: Ref) -> None:
        stored = self._queue.stored(ref)
        for _ in range(_ATTEMPTS):
            status = self._queue.wanted(ref)
            if stored is None or (status is None and not self._queue.leaves(ref)):
                self._queue.left(ref)
                return
            write = build_withdrawal(stored) if status is None else self._build(status, stored)
            if write is None:
                self._nothing_to_do(ref, status, stored)
                return
            seconds = self._leadership.seconds_left()
            if not seconds:
                self._queue.again(ref)
                return
            try:
                async with asyncio.timeout(seconds):
                    if await self._write(status, write):
                        return
                    stored = await self._read(stored)
            except TimeoutError:
                self._failed(ref, "The API server did not answer in time.")
                return
            except ApiUnreachableError as error:
                self._failed(ref, str(error))
                return
        self._failed(ref, "Other clients keep changing the object. Find them in metadata.managedFields of the object.")

    def _nothing_to_do(self, ref: Ref, status: Status | None, stored: StoredObject) -> None:
        if status is None:
            self._queue.left(ref)
        elif stored.generation == status.generation:
            self._queue.has(status, stored)

    def _build(self, status: Status, stored: StoredObject) -> StatusWrite | None:
        patient = self._queue.patient(status.ref, uptime())
        return build_write(status, stored, now(), known=self._queue.known(), patient=patient)

    async def _write(self, status: Status | None, write: StatusWrite) -> bool:
        """Write a status; tell whether this is done, or the object must be read again."""
        before = write.stored
        seen = self._queue.seen_version(before.ref)
        answer = await self._client.request(
            "PATCH", f"{before.path}/status", query=write.query, body=write.body, content_type=write.content_type
        )
        match answer.status:
            case HTTPStatus.OK:
                self._succeeded(before.ref)
                if status is None:
                    self._queue.left(before.ref)
                else:
                    after = parse_stored(before.ref, before.path, json.loads(answer.body))
                    self._queue.wrote(status, before, after, seen)
                    self._stored(status, write, after)
                return True
            case HTTPStatus.CONFLICT:
                return False
            case HTTPStatus.NOT_FOUND:
                return True
            case _:
                raise ApiUnreachableError(answer_fault(answer, "patch", f"the status of {before.ref}"))

    def _stored(self, status: Status, write: StatusWrite, after: StoredObject) -> None:
        self._emit(write.transitions, write.stored)
        if self._build(status, after) is not None:
            self._note(
                status.ref.kind,
                "The API server did not store the whole status. Install a newer CustomResourceDefinition of the kind.",
            )

    async def _read(self, stored: StoredObject) -> StoredObject | None:
        answer = await self._client.request("GET", stored.path)
        match answer.status:
            case HTTPStatus.OK:
                return parse_stored(stored.ref, stored.path, json.loads(answer.body))
            case HTTPStatus.NOT_FOUND:
                return None
            case _:
                raise ApiUnreachableError(answer_fault(answer, "get", str(stored.ref)))

    def _succeeded(self, ref: Ref) -> None:
        self._written += 1
        self._failures.pop(ref, None)
        if self._faults.pop(ref.kind, ""):
            log.info("writes statuses again", kind=ref.kind)

    def _failed(self, ref: Ref, why: str) -> None:
        """Repeat a write later, ever more rarely."""
        failures = self._failures[ref] = self._failures.get(ref, 0) + 1
        self._note(ref.kind, why)
        delay = backoff_delay(failures, random.random(), _LONGEST_PAUSE)  # noqa: S311 (jitter, no secret)
        asyncio.get_running_loop().call_later(delay, self._repeat, ref)

    def _repeat(self, ref: Ref) -> None:
        if ref in self._queue:
            self._queue.again(ref)
            self.wake()
        else:
            self._failures.pop(ref, None)

    def _note(self, kind: str, why: str) -> None:
        """Log a fault once for all objects of a kind, until writes work again."""
        if kind not in self._faults:
            self._faults[kind] = why
            log.warning("cannot write statuses", kind=kind, why=why)
