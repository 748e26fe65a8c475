"""The workers of an authorization service: metrics and readiness as if they were one process.

Each worker answers on a socket of its own, which only its parent can reach. The parent queries all of them for every
request to it, and from time to time besides, so that few counts are lost with a worker that is killed. The counts of a
worker stay when it ends: no counter goes back.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from authplane.authserver.records.runtime.joined_metrics import join_metrics, metrics_text
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.core.values import dataclass
from authplane.runtime.child_processes import owned_tasks
from authplane.runtime.clients.ask_page import Reply, ask
from authplane.runtime.servers.listen import UnixAddress

_LIMIT: Final = 1.0
"""How many seconds a worker has to answer."""
_PERIOD: Final = 5.0
"""How many seconds of a killed worker's counts may be missing."""


@dataclass(slots=True, eq=False)
class _Member:
    """A worker that runs."""

    front: str
    number: int
    socket: str
    seen: bytes = b""
    """Its metrics when it last reported them."""
    answers: bool = True


class Fleet:
    """The workers that run, by the front that they serve; ``own`` are the metrics of the parent."""

    def __init__(self, own: Metrics) -> None:
        self._own = own
        self._members: list[_Member] = []
        self._begun: Counter[tuple[str, int]] = Counter()
        self._ended = b""
        """The counts of workers that have ended."""
        self._turn = asyncio.Lock()

    @contextmanager
    def member(self, front: str, number: int, socket: str) -> Iterator[None]:
        """Include a worker while the block runs."""
        member = _Member(front, number, socket)
        self._begun[front, number] += 1
        self._members.append(member)
        try:
            yield
        finally:
            self._members.remove(member)
            self._ended = join_metrics((self._ended, member.seen), lasting=True)

    async def text(self) -> bytes:
        """Write the metrics of all workers, added up; for a worker that does not respond, its last ones."""
        # One at a time: an older answer must not replace a newer one.
        async with self._turn:
            async with asyncio.TaskGroup() as tasks:
                for member in self._members:
                    tasks.create_task(_look(member))
            return join_metrics(
                (self._own.text(), self._describe(), self._ended, *(member.seen for member in self._members))
            )

    def obstacle(self, front: str) -> Callable[[], Awaitable[str]]:
        """Return a function that says why no worker of a front is ready; empty if one is."""

        async def ask() -> str:
            members = [member for member in self._members if member.front == front]
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(_ask(member, "/readyz")) for member in members]
            replies = [each.result() for each in asked]
            if any(reply is not None and reply.status == HTTPStatus.OK for reply in replies):
                return ""
            told = [f"worker {member.number}: {_why(reply)}" for member, reply in zip(members, replies, strict=True)]
            return ", ".join(told) or "no worker is running"

        return ask

    @asynccontextmanager
    async def followed(self, *, period: float = _PERIOD) -> AsyncGenerator[None]:
        """Ask the workers from time to time while the block runs."""
        async with owned_tasks() as tasks:
            follower = tasks.create_task(self._follow(period))
            try:
                yield
            finally:
                follower.cancel()

    async def _follow(self, period: float) -> None:
        while True:
            await asyncio.sleep(period)
            await self.text()

    def _describe(self) -> bytes:
        workers = GaugeMetricFamily("authplane_workers", "Workers that run and respond.", labels=("front",))
        restarts = CounterMetricFamily("authplane_worker_restarts", "Restarts of workers.", labels=("front",))
        for front in sorted({front for front, _ in self._begun}):
            answering = sum(member.front == front and member.answers for member in self._members)
            workers.add_metric((front,), answering)
            again = sum(times - 1 for (each, _), times in self._begun.items() if each == front)
            restarts.add_metric((front,), again)
        return metrics_text((workers, restarts))


async def _look(member: _Member) -> None:
    reply = await _ask(member, "/metrics")
    member.answers = reply is not None and reply.status == HTTPStatus.OK
    if reply is not None and member.answers:
        member.seen = reply.content


async def _ask(member: _Member, target: str) -> Reply | None:
    try:
        return await ask(UnixAddress(path=member.socket), target, limit=_LIMIT)
    except (OSError, TimeoutError):
        return None


def _why(reply: Reply | None) -> str:
    """Return a worker's message, without the line that says that it is not ready."""
    if reply is None:
        return "does not respond"
    return "; ".join(reply.body.splitlines()[1:])
