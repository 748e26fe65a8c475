"""The current plan of a channel; calls wait for the first one."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Final

import grpc

from authplane.dataplane.filters.calls import Stop
from authplane.dataplane.runtime.channels.channel_plan import CLOSED, Plan, State, connectivity_of
from authplane.dataplane.runtime.connections.deadlines import Deadline
from authplane.dataplane.runtime.connections.jwt_calls import LATE
from authplane.runtime.child_processes import place_of

_log: Final = logging.getLogger("authplane.grpc")


class CurrentPlan:
    """What is known, and whether the channel has ended."""

    def __init__(self, state: State = None) -> None:
        self.state = state
        self.closed = False

    @property
    def connectivity(self) -> grpc.ChannelConnectivity:
        """How the channel is: ready when it has a plan."""
        return connectivity_of(self.state, closed=self.closed)

    def for_call(self, *, patient: bool) -> Plan | Stop | None:
        """Return what a call obeys; None if it has to wait.

        A call that is patient waits for a plan even if there is a reason why there is none.
        """
        state = self.state
        if self.closed:
            return CLOSED
        return None if patient and isinstance(state, Stop) else state


class ThreadCurrentPlan(CurrentPlan):
    """Threads wait for the plan, and callbacks receive its state."""

    def __init__(self, state: State = None) -> None:
        super().__init__(state)
        self._changed = threading.Condition()
        self._told: list[Callable[[grpc.ChannelConnectivity], None]] = []

    def set(self, state: State) -> None:
        """Obey something else from now on."""
        with self._changed:
            self.state = state
            self._changed.notify_all()
            told = tuple(self._told)
        for each in told:
            self._tell(each)

    def close(self) -> None:
        """End all waiting."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def wait(self, deadline: Deadline, *, patient: bool) -> Plan | Stop:
        """Wait for what a call obeys."""
        with self._changed:
            self._changed.wait_for(lambda: self.for_call(patient=patient) is not None, deadline.left())
            return self.for_call(patient=patient) or LATE

    def tell(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell how the channel is, now and when it changes."""
        with self._changed:
            self._told.append(callback)
        self._tell(callback)

    def tell_no_more(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell no longer."""
        with self._changed:
            self._told = [each for each in self._told if each != callback]

    def _tell(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        try:
            callback(self.connectivity)
        except Exception as error:  # noqa: BLE001 (as grpcio does: what comes next does not depend on it)
            _log.error("connectivity callback of a channel failed: %s", place_of(error))


class AioCurrentPlan(CurrentPlan):
    """Tasks of an event loop wait for it."""

    def __init__(self, state: State = None) -> None:
        super().__init__(state)
        self._changed = asyncio.Event()

    def set(self, state: State) -> None:
        """Obey something else from now on."""
        self.state = state
        self._notify()

    def close(self) -> None:
        """End all waiting."""
        self.closed = True
        self._notify()

    async def changed(self) -> None:
        """Wait for a change."""
        await self._changed.wait()

    async def wait(self, *, patient: bool) -> Plan | Stop:
        """Wait for what a call obeys."""
        while (found := self.for_call(patient=patient)) is None:
            await self.changed()
        return found

    def _notify(self) -> None:
        # This wakes current waiters; later ones wait for the next change.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
