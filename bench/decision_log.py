"""What the decision log costs a check: processor time of the same server with and without a log, in the same run.

Checks carry a token that was verified before, and an expression decides. In one process they follow each other without
a network; over a front, a program as `authplane authserver policy` runs it has one core, and every thread and process
of it counts. Rounds with and without a log alternate, so that what else the machine does falls on all of them.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final

from authplane.authserver.backends.access_policies import AccessPolicies
from authplane.authserver.backends.runtime.cel_watch import WatchedExpressions
from authplane.authserver.fronts.runtime.answer_checks import Checks
from authplane.authserver.plan.plan_text import plan_text
from authplane.authserver.plan.server_plan import BranchPlan, Engine, FrontPlan, PolicyPlan, ServerPlan
from authplane.authserver.records.runtime.decision_log import ToFile, open_decision_log
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.authserver.records.runtime.verdict_metrics import VerdictCounts
from authplane.cel.evaluate.remembered_results import RememberedExpressions
from authplane.devkit.local.dev_issuer import IssuerPlan, serve_issuer
from authplane.policy.compile.compile_policies import compile_policies
from authplane.policy.decide.request_case import Means
from authplane.policy.identity.evidence import Identifier
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.rules.access_settings import Options
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.issuers.issuers import IssuerOptions, follow_issuers
from authplane.runtime.log import LogFormat
from authplane.runtime.servers.listen import TcpAddress
from bench.h2load import cores, load
from bench.policy import WARM, Scenario, resources_of, scenarios, until_allowed, write_documents
from bench.processes import seconds_used, started_here

_AIM: Final = 15.0
"""What a line may cost, in microseconds."""
_DECISIONS: Final = 2_000
_IN_PROCESS_ROUNDS: Final = 21
_CHECKS: Final = 5_000
_ROUNDS: Final = 9
_PROGRAM: Final = """
import os
from authplane.authserver.plan.plan_text import read_plan
from authplane.authserver.runtime.server import serve_checks
from authplane.runtime.log import LogFormat, set_up_log
set_up_log(LogFormat.JSON)
serve_checks(read_plan(os.environ["PLAN"]))
"""


async def main() -> None:
    """Measure in one process, and over both fronts."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        plan = IssuerPlan(folder=folder / "dev", address=TcpAddress(host="127.0.0.1", port=0))
        async with serve_issuer(plan, datetime.now(UTC)) as issuer:
            scenario = scenarios(issuer, folder / "dev")[WARM]
            await _in_process(scenario, folder)
            for engine in (Engine.PYVOY, Engine.GRPCIO):
                await _over_a_front(scenario, folder / engine.value, engine)


async def _in_process(scenario: Scenario, folder: Path) -> None:
    compiled = compile_policies(resources_of(scenario), Options())
    async with follow_issuers(compiled.policies.issuers, IssuerOptions(allow_private_networks=True)) as issuers:
        await issuers.tried(5)
        means = Means(evaluate=RememberedExpressions(WatchedExpressions()))
        backend = AccessPolicies(Identifier(TokenInspector(issuers)), means=means)
        backend.publish(compiled.policies)
        body = scenario.asked.SerializeToString()
        with ExitStack() as stack:
            path = folder / "decisions.log"
            opened = stack.enter_context(open_decision_log(ToFile(path=path), room=_DECISIONS * 2))
            counts = VerdictCounts().record
            bare = Checks(backend, observer=Observer("policy", Metrics().checks("policy"), verdicts=(counts,)))
            told = Observer("policy", Metrics().checks("policy"), lines=opened, verdicts=(counts,))
            logged = Checks(backend, observer=told)
            spent: dict[str, list[float]] = {"none": [], "file": []}
            for round_ in range(_IN_PROCESS_ROUNDS):
                spent["none"].append(_spent(lambda: bare.begin(body)))
                want = (round_ + 1) * _DECISIONS
                spent["file"].append(_spent(lambda: logged.begin(body), lambda: _lines(path) >= want))  # noqa: B023 (called at once)
    _compare("in one process", spent)


def _spent(check: Callable[[], object], written: Callable[[], bool] = lambda: True) -> float:
    """Return the processor time of a check, with all that every thread does until its line is written."""
    begun = time.process_time()
    for _ in range(_DECISIONS):
        check()
    used = time.process_time() - begun
    while not written():
        # Reading the file is the benchmark's own work, so it is not counted.
        begun = time.process_time()
        time.sleep(0.2)
        used += time.process_time() - begun
    return used / _DECISIONS


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


async def _over_a_front(scenario: Scenario, folder: Path, engine: Engine) -> None:
    with cores() as core:
        if core is None:
            return
        write_documents(folder, scenario)
        logs = {"none": "", "file": str(folder.with_suffix(".log")), "standard output": "-"}
        spent: dict[str, list[float]] = {name: [] for name in logs}
        async with AsyncExitStack() as stack:
            ports, processes = {}, {}
            for name, log in logs.items():
                before = started_here()
                ports[name] = await stack.enter_async_context(_served(folder, engine, log))
                processes[name] = started_here() - before
            for name in logs:
                await until_allowed(ports[name], scenario.asked)
                await load(ports[name], core, scenario.asked, _CHECKS)
            for name in list(logs) * _ROUNDS:
                used = seconds_used(processes[name])
                await load(ports[name], core, scenario.asked, _CHECKS)
                # The last lines are written within that time.
                await asyncio.sleep(0.3)
                spent[name].append((seconds_used(processes[name]) - used) / _CHECKS)
        _compare(f"over {engine.value}", spent)


@asynccontextmanager
async def _served(folder: Path, engine: Engine, log: str) -> AsyncGenerator[int]:
    """Serve in a program of its own; yields the port. Its standard output is a pipe that somebody reads."""
    front = FrontPlan(address=TcpAddress(host="127.0.0.1", port=0))
    branch = BranchPlan(name="policy", backend=PolicyPlan(folder=str(folder), allow_private_issuers=True))
    plan = ServerPlan(branches=(branch,), fronts=(front,), engine=engine, decision_log=log, log_format=LogFormat.JSON)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def tell(line: Line) -> None:
        if "authorization service listening" in line.text and not port.done():
            port.set_result(int(json.loads(line.text)["address"].rpartition(":")[2]))

    environment = os.environ | {"PLAN": plan_text(plan)}
    with _drained() as output:
        async with run_process([sys.executable, "-c", _PROGRAM], sink=tell, output=output, environment=environment):
            async with asyncio.timeout(60):
                found = await port
            yield found


@contextmanager
def _drained() -> Generator[int]:
    """Read a pipe and forget what is in it; yields the end to write to."""
    end, output = os.pipe()

    def drain() -> None:
        while os.read(end, 1_000_000):
            pass
        os.close(end)

    Thread(target=drain, daemon=True).start()
    try:
        yield output
    finally:
        os.close(output)


def _compare(where: str, spent: Mapping[str, list[float]]) -> None:
    """Print the least and the median round of each, and what a line costs."""
    bare = spent["none"]
    for name, costs in spent.items():
        if name == "none":
            continue
        lines = [each - beside for each, beside in zip(costs, bare, strict=True)]
        print(
            f"  {where}: {min(bare) * 1e6:.0f} µs a check without a log, {min(costs) * 1e6:.0f} µs with one "
            f"({name}): {min(costs) / min(bare):.2f} times; a line costs {(min(costs) - min(bare)) * 1e6:.1f} µs "
            f"(limit {_AIM:.0f}), {median(lines) * 1e6:.1f} µs in the median round",
            flush=True,
        )
