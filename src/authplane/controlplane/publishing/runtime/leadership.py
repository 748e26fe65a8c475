"""Gets and keeps the Lease of the replica that writes statuses."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from authplane.controlplane.election.elector import TIMING, Elector, Timing
from authplane.controlplane.election.lease_record import lease_time
from authplane.controlplane.publishing.runtime.lease_api import LeaseApi
from authplane.runtime.clock import now, uptime
from authplane.runtime.kubernetes.api_client import ApiUnreachableError

log: Final = structlog.stdlib.get_logger()

LEASE: Final = "authplane-status"
"""The name of the Lease; its holder writes statuses."""
_FAREWELL: Final = 3.0
"""Seconds that giving up the Lease may take."""


class Leadership:
    """Whether this replica may write statuses now."""

    def __init__(self, api: LeaseApi, identity: str, changed: Callable[[], None], timing: Timing = TIMING) -> None:
        self._api = api
        self._changed = changed
        self._timing = timing
        self._elector = Elector(identity, timing)
        self._led = False
        self._fault = ""

    def leads(self) -> bool:
        """Tell whether this replica may write now."""
        return self._elector.leads(uptime())

    def seconds_left(self) -> float:
        """Return how long this replica may write; zero if it may not."""
        until = self._elector.leads_until()
        return 0.0 if until is None else max(0.0, until - uptime())

    async def follow(self) -> None:
        """Take part in the election until cancelled, then give up the Lease."""
        try:
            while True:
                began = uptime()
                await self._turn()
                self._tell()
                pause = self._elector.wait(uptime()) - (uptime() - began if self.leads() else 0.0)
                await asyncio.sleep(max(0.05, pause))
        finally:
            await self._step_down()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(self._timing.retry):
                await self._attempt()
        except TimeoutError:
            self._failed(f"The API server did not answer about the Lease {LEASE} within {self._timing.retry:g} s.")
        except ApiUnreachableError as error:
            self._failed(str(error))
        else:
            if self._fault:
                log.info("reached the API server again", lease=LEASE)
            self._fault = ""

    async def _attempt(self) -> None:
        elector = self._elector
        if elector.must_read:
            elector.observed(await self._api.read(LEASE), uptime())
        began = uptime()
        wanted = elector.attempt(began, lease_time(now()))
        if wanted is None:
            return
        # Until the answer is here, the write counts as failed.
        elector.failed()
        stored = await self._api.write(LEASE, wanted)
        if stored is not None:
            elector.written(stored, began)

    def _failed(self, why: str) -> None:
        self._elector.failed()
        if why != self._fault:
            self._fault = why
            log.warning("cannot renew or read the Lease", lease=LEASE, why=why)

    def _tell(self) -> None:
        leads = self.leads()
        if leads == self._led:
            return
        self._led = leads
        if leads:
            log.info("this replica writes statuses", lease=LEASE, identity=self._elector.identity)
        else:
            log.warning("this replica writes no statuses any more", lease=LEASE, identity=self._elector.identity)
        self._changed()

    async def _step_down(self) -> None:
        released = self._elector.release(lease_time(now()))
        if released is None:
            return
        try:
            async with asyncio.timeout(_FAREWELL):
                await self._api.write(LEASE, released)
            log.info("gave up the Lease", lease=LEASE)
        except (ApiUnreachableError, TimeoutError) as error:
            log.warning("cannot give up the Lease; it ends by itself", lease=LEASE, why=str(error))
