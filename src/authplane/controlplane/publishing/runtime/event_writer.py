"""Writes Events: each transition is one Event, and its repetitions are counted in it."""

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import structlog

from authplane.controlplane.status.kubernetes.status_events import EventWrite, build_events, series_patch
from authplane.controlplane.status.kubernetes.status_writes import MERGE, Transition
from authplane.controlplane.status.kubernetes.stored_objects import StoredObject
from authplane.runtime.clock import now
from authplane.runtime.kubernetes.api_answers import answer_fault
from authplane.runtime.kubernetes.api_client import ApiClient, ApiResponse, ApiUnreachableError

log: Final = structlog.stdlib.get_logger()

_MOST: Final = 1000
"""Events that wait; further ones replace the oldest."""
_RESOURCE: Final = "events.events.k8s.io"


class EventWriter:
    """Writes Events one after the other; an Event that cannot be written is lost, and the log says why."""

    def __init__(self, client: ApiClient, instance: str) -> None:
        self._client = client
        self._instance = instance
        self._waiting: deque[EventWrite] = deque(maxlen=_MOST)
        self._news = asyncio.Event()
        self._fault = ""

    def add(self, transitions: Iterable[Transition], stored: StoredObject) -> None:
        """Take the transitions of an object; those that people must see become Events."""
        self._waiting.extend(build_events(transitions, stored, now(), self._instance))
        if self._waiting:
            self._news.set()

    async def follow(self) -> None:
        """Write Events as they come, for ever."""
        while True:
            while self._waiting:
                await self._write(self._waiting.popleft())
            self._news.clear()
            await self._news.wait()

    async def _write(self, event: EventWrite) -> None:
        try:
            answer = await self._client.request("POST", event.collection, body=event.body)
            if answer.status == HTTPStatus.CONFLICT:
                answer = await self._count(event)
        except ApiUnreachableError as error:
            self._failed(str(error))
            return
        if answer.status in {HTTPStatus.OK, HTTPStatus.CREATED}:
            self._fault = ""
        else:
            self._failed(answer_fault(answer, "write", _RESOURCE))

    async def _count(self, event: EventWrite) -> ApiResponse:
        """Count one more occurrence of an Event that exists."""
        path = f"{event.collection}/{event.name}"
        stored = await self._client.request("GET", path)
        if stored.status != HTTPStatus.OK:
            return stored
        patch = series_patch(json.loads(stored.body), now())
        return await self._client.request("PATCH", path, body=patch, content_type=MERGE)

    def _failed(self, why: str) -> None:
        if why != self._fault:
            self._fault = why
            log.warning("cannot write Events", why=why)
