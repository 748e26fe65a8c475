"""What goes wrong: a table of faults, with whom they may disturb and for how long."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from tests.soak import crowds, edits
from tests.soak.documents import SHOP
from tests.soak.programs import PATIENCE, listeners_on
from tests.soak.requests import KINDS, Kind, Shown
from tests.soak.running_site import KEYS_KEPT, WORKERS
from tests.soak.stage import Measured, Stage
from tests.support.eventually import eventually
from tests.support.issuers.issuer_server import response
from tests.support.issuers.minting import Signer, signer

EVERYBODY: Final = frozenset(KINDS)
CHECKED: Final = frozenset(kind for kind in KINDS if kind.is_checked)
"""Those about which the policy server is asked; Envoy decides about the others, or nobody does."""
BEARERS: Final = frozenset(kind for kind in KINDS if kind.shown is Shown.TOKEN)
HUNG_WORKER: Final = "a worker hangs"
HUNG_LIMIT: Final = 2.0
"""Seconds for which requests may fail after one worker of two hangs."""
_UNKNOWN: Final = 32.0
"""Seconds in which an unknown key is known: issuers are asked every 30 seconds on account of tokens."""
_KEPT: Final = KEYS_KEPT + 8.0
"""Seconds in which everybody has the keys of an issuer, without a reason to ask for them."""
BACK_LIMIT: Final = 3.0
"""Seconds in which an edit is in force that was made while the control plane was away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong."""

    name: str
    run: Callable[[Stage], Awaitable[None]]
    spoils: frozenset[Kind] = frozenset()
    """Requests that may fail meanwhile."""
    recovery: float = 0.0
    """Seconds after its end in which they may still fail."""
    loses_lines: bool = False
    takes: float = 10.0
    """About how many seconds it lasts: one that does not fit into the run is left out."""
    least: float = 0.0
    """Minutes that a run has to last for it."""


async def kill_policy_server(stage: Stage) -> None:
    program = stage.world.policy
    starts = program.starts
    program.kill()
    await program.serves(starts + 1)
    await _all_workers(stage)


async def kill_worker(stage: Stage) -> None:
    """Kill the oldest: so each of them is killed sooner or later."""
    chosen = stage.world.workers()[0]
    os.kill(chosen, signal.SIGKILL)
    await _all_workers(stage, without=chosen)


async def stop_policy_server(stage: Stage) -> None:
    processes = [stage.world.policy.pid, *stage.world.workers()]
    for each in processes:
        os.kill(each, signal.SIGSTOP)
    await asyncio.sleep(3)
    for each in processes:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGCONT)
    await _all_workers(stage)


async def stop_worker(stage: Stage) -> None:
    chosen = stage.random.choice(stage.world.workers())
    os.kill(chosen, signal.SIGSTOP)
    await asyncio.sleep(20)
    with suppress(ProcessLookupError):
        os.kill(chosen, signal.SIGCONT)
    await _all_workers(stage)


async def kill_envoy(stage: Stage) -> None:
    program = stage.world.envoy
    starts = program.starts
    program.kill()
    await program.serves(starts + 1)
    await stage.world.envoy_serves()


async def control_plane_away(stage: Stage, seconds: float) -> None:
    """Take a right away while the control plane is not there: nobody else tells Envoy."""
    async with stage.editing:
        await stage.edit(SHOP, sells=True)
        await stage.world.control.leave()
        edit = stage.write_policy(SHOP, sells=False)
        await asyncio.sleep(seconds)
        await stage.world.control.come_back()
        back = stage.now()
        edit.settled = back + BACK_LIMIT
        denied = await stage.until_denied(SHOP)
        stage.measured.append(Measured("edit in force after the control plane is back", denied - back, BACK_LIMIT))


async def issuer_away(stage: Stage) -> None:
    issuer = stage.world.issuer
    kept = dict(issuer.answers)
    issuer.answers.update(dict.fromkeys(kept, response(b"", status="503 Service Unavailable")))
    await asyncio.sleep(10)
    issuer.answers.update(kept)


async def rotate_keys(stage: Stage) -> None:
    """Publish the next key as long ahead as the issuer lets others keep keys: nobody may notice."""
    new = _next_key(stage)
    stage.world.publish(stage.world.signer, new)
    await asyncio.sleep(_KEPT)
    stage.world.signer = new
    await asyncio.sleep(3)
    stage.world.publish(new)


async def replace_keys(stage: Stage) -> None:
    """Sign with a key that nobody has seen, as after a leak; later also Envoy has it and need not ask."""
    stage.world.signer = _next_key(stage)
    stage.world.publish(stage.world.signer)
    async with stage.window("unknown key", BEARERS, loses_lines=False):
        await asyncio.sleep(_UNKNOWN)
    await asyncio.sleep(_KEPT - _UNKNOWN)


def _next_key(stage: Stage) -> Signer:
    return signer("ES256", f"soak-{stage.random.getrandbits(64)}")


async def fill_log_disk(stage: Stage) -> None:
    if not stage.world.small_disk:
        stage.skipped.add("log disk full: mounting a small disk needs root")
        return
    filler = stage.world.log.with_name("filler")
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1024 * 1024)):
            pass
    try:
        await asyncio.sleep(5)
    finally:
        filler.unlink()


async def kill_workers_while_broken(stage: Stage) -> None:
    """Kill every worker while a file has a mistake: those that replace them need its last good version."""
    async with edits.broken_policy(stage):
        for _ in range(WORKERS):
            await run_fault(stage, WORKER_KILLED)
        await asyncio.sleep(3)


async def restart_control_plane_while_broken(stage: Stage) -> None:
    async with edits.broken_policy(stage):
        await stage.world.control.leave()
        await stage.world.control.come_back()
        await asyncio.sleep(3)


async def _all_workers(stage: Stage, without: int = 0) -> None:
    """Wait until the policy server has all its workers, and each of them listens."""

    async def whole() -> bool:
        found = stage.world.workers() if stage.world.policy.child is not None else []
        return without not in found and len(found) == WORKERS == listeners_on(stage.world.ports.policy)

    await eventually(whole, limit=PATIENCE)


WORKER_KILLED: Final = Fault(
    name="worker killed", run=kill_worker, spoils=CHECKED, recovery=1, loses_lines=True, takes=5
)
FAULTS: Final = (
    Fault(name="policy server killed", run=kill_policy_server, spoils=CHECKED, recovery=3, loses_lines=True),
    WORKER_KILLED,
    Fault(name="policy server stopped", run=stop_policy_server, spoils=CHECKED, recovery=3, loses_lines=True),
    Fault(name=HUNG_WORKER, run=stop_worker, spoils=CHECKED, loses_lines=True, takes=22),
    Fault(name="Envoy killed", run=kill_envoy, spoils=EVERYBODY, recovery=3),
    Fault(name="control plane away for 2 s", run=partial(control_plane_away, seconds=2), takes=15),
    Fault(name="control plane away for 20 s", run=partial(control_plane_away, seconds=20), takes=35, least=5),
    Fault(name="control plane away for 60 s", run=partial(control_plane_away, seconds=60), takes=75, least=10),
    Fault(name="issuer away", run=issuer_away, takes=11),
    Fault(name="keys rotated", run=rotate_keys, takes=_KEPT + 5, least=4),
    Fault(name="keys replaced at once", run=replace_keys, takes=_KEPT, least=8),
    Fault(name="broken policy file", run=edits.break_policy),
    Fault(name="workers killed while a file is broken", run=kill_workers_while_broken, takes=25),
    Fault(name="control plane restarted while a file is broken", run=restart_control_plane_while_broken, takes=20),
    Fault(name="new broken file", run=edits.add_broken_file),
    Fault(name="writer pauses inside a document", run=edits.pause_inside_document),
    Fault(name="policy deleted and restored", run=edits.delete_policy, takes=12),
    Fault(name="certificates renewed", run=edits.renew_certificates, takes=3),
    Fault(name="log disk full", run=fill_log_disk, takes=6),
    Fault(name="2,000 idle connections", run=crowds.idle, takes=14),
    Fault(name="slow clients", run=crowds.slow, takes=11),
    Fault(name="a dripped request", run=crowds.drip, takes=65, least=10),
    Fault(name="bursts", run=crowds.bursts, takes=8),
)


async def run_fault(stage: Stage, fault: Fault) -> None:
    """Let it go wrong, and wait until everything has to be well again."""
    async with stage.window(fault.name, fault.spoils, loses_lines=fault.loses_lines) as window:
        try:
            await fault.run(stage)
        except TimeoutError:
            stage.measured.append(Measured(f"end of: {fault.name}", inf, PATIENCE))
        window.ended = stage.now() + fault.recovery
        await asyncio.sleep(fault.recovery)
