"""What `authplane doctor` examines, and what its probes return.

A probe is a function from what is examined to rows. `probes.py` lists all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from authplane.controlplane.serving.generation import Generation
from authplane.core.values import dataclass
from authplane.runtime.clock import now
from authplane.runtime.servers.listen import Address


class Outcome(StrEnum):
    """The outcome of a probe."""

    OK = "ok"
    WARNING = "warning"
    """It works, and may be intended."""
    FINDING = "finding"
    UNKNOWN = "unknown"
    """The probe could not run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The outcome for one subject."""

    probe: str
    subject: str
    """A resource, a file or an address."""
    outcome: Outcome
    message: str
    remedy: str = ""
    """What to do; empty only if the outcome is `Outcome.OK`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What probes examine."""

    generation: Generation
    given: tuple[Address, ...] = ()
    """Where ``authplane run`` decides for the folder; empty if it does not run, or the folder names another server."""
    served: bool = False
    """Whether a control plane serves the folder now."""
    allow_private_issuers: bool = False
    in_cluster: bool = False
    """Whether the documents are the objects of a cluster."""
    clock: Callable[[], datetime] = now


Probe: TypeAlias = Callable[[Examined], Awaitable[Sequence[Row]]]


def examine(examined: Examined, probes: Sequence[Probe]) -> tuple[Row, ...]:
    """Run every probe at the same time; rows come in the order of the probes.

    It must not be called where an event loop runs.
    """
    return asyncio.run(examine_all(examined, probes))


async def examine_all(examined: Examined, probes: Sequence[Probe]) -> tuple[Row, ...]:
    """Run every probe at the same time; rows come in the order of the probes."""

    async def run(probe: Probe) -> Sequence[Row]:
        return await probe(examined)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(run(probe)) for probe in probes]
    return tuple(row for task in running for row in task.result())


def row_record(row: Row) -> dict[str, Any]:
    """Return a row as ``authplane doctor -o json`` prints it."""
    return {
        "probe": row.probe,
        "subject": row.subject,
        "outcome": row.outcome.value,
        "message": row.message,
        "remedy": row.remedy,
    }
