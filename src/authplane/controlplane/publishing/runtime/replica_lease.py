"""The Lease of each replica: it says what the replica's proxies accepted, and the leader reads those of all."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Final

import structlog

from authplane.controlplane.election.acknowledgements import ANNOTATION, Report, render_report
from authplane.controlplane.election.elector import TIMING
from authplane.controlplane.election.lease_record import Lease, lease_time
from authplane.controlplane.election.replicas import Replicas
from authplane.controlplane.publishing.runtime.lease_api import LeaseApi
from authplane.runtime.clock import now, uptime
from authplane.runtime.kubernetes.api_client import ApiUnreachableError

log: Final = structlog.stdlib.get_logger()

_OFTEN: Final = 0.5
"""Seconds between two writes of changing reports, and between two readings by the leader."""
_FAREWELL: Final = 3.0


class ReplicaLease:
    """Keeps the Lease of this replica, and reads those of the others while this replica leads."""

    def __init__(self, api: LeaseApi, identity: str, leads: Callable[[], bool], changed: Callable[[], None]) -> None:
        self._api = api
        self._identity = identity
        self._name = f"authplane-replica-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        self._leads = leads
        self._changed = changed
        self._lease: Lease | None = None
        self._report = ""
        self._news = asyncio.Event()
        self._fault = ""
        self._known: tuple[Report, ...] = ()
        self.replicas: Final = Replicas(identity)

    def report(self, report: Report) -> None:
        """Take what the proxies of this replica accepted."""
        text = render_report(report)
        if text != self._report:
            self._report = text
            self._news.set()

    async def follow(self) -> None:
        """Renew the Lease, and write each new report, until cancelled; then delete the Lease."""
        try:
            while True:
                self._news.clear()
                await self._guarded(self._renew)
                await asyncio.sleep(_OFTEN)
                try:
                    async with asyncio.timeout(TIMING.retry - _OFTEN):
                        await self._news.wait()
                except TimeoutError:
                    pass
        finally:
            await self._leave()

    async def watch(self) -> None:
        """Read the Leases of other replicas while this replica leads, for ever."""
        while True:
            if self._leads():
                await self._guarded(self._read_others)
            await asyncio.sleep(_OFTEN)

    async def _guarded(self, act: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            async with asyncio.timeout(TIMING.renew_within):
                await act()
        except (ApiUnreachableError, TimeoutError) as error:
            self._lease = None
            if str(error) != self._fault:
                self._fault = str(error)
                log.warning("cannot write or read the Leases of replicas", why=self._fault)
        else:
            self._fault = ""

    async def _renew(self) -> None:
        time = lease_time(now())
        known = self._lease if self._lease is not None else await self._api.read(self._name)
        started = known or Lease(holder=self._identity, duration=TIMING.duration, acquired=time, renewed=time)
        wanted = replace(started, holder=self._identity, renewed=time, annotations={ANNOTATION: self._report})
        self._lease = None
        self._lease = await self._api.write(self._name, wanted)

    async def _read_others(self) -> None:
        moment = uptime()
        self.replicas.observed(await self._api.list(), moment)
        for name, lease in self.replicas.gone(moment).items():
            await self._api.delete(name, lease)
        found = tuple(self.replicas.reports(uptime()))
        if found != self._known:
            self._known = found
            self._changed()

    async def _leave(self) -> None:
        lease = self._lease
        if lease is None:
            return
        try:
            async with asyncio.timeout(_FAREWELL):
                await self._api.delete(self._name, lease)
        except (ApiUnreachableError, TimeoutError):
            pass  # it ends by itself, and the leader deletes it
