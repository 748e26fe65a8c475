"""A control plane beside a real API server: 10,000 HTTPProxies and 30,000 Secrets, one change, a minute of churn.

``PROXIES=1000`` in the environment measures with fewer; there are three times as many Secrets.
"""

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.support.kubernetes.api_objects import ApiObjects, Object
from tests.support.kubernetes.local_cluster import Cluster, running_cluster
from tools.kubernetes.built_programs import CLUSTER, AbsentError, find_programs
from tools.kubernetes.upstream_crds import find_crds

from authplane.controlplane.serving.runtime.control_socket import live_address
from authplane.runtime.child_processes import Line, run_process
from authplane.runtime.clients.ask_page import ask
from authplane.sources.runtime.read_cluster import ClusterPart, root_of
from bench.processes import bytes_resident, seconds_used, started_here

_PROXIES: Final = int(os.environ.get("PROXIES") or 10_000)
_NAMESPACES: Final = 100
_CHANGES: Final = 100
_CHURN: Final = 60.0
_PER_SECOND: Final = 50
_LIMIT: Final = 600.0
_DEFAULT: Final = "NotReconciled"


async def main() -> None:
    """Create the objects, then measure; say so if there is no cluster here."""
    try:
        programs, crds = find_programs(CLUSTER), find_crds("contour")
    except AbsentError as error:
        print(f"  left out: {error}", flush=True)
        return
    with TemporaryDirectory(prefix="authplane-bench-") as folder, running_cluster(Path(folder), programs) as cluster:
        cluster.install_crds(crds)
        began = time.monotonic()
        _create_all(cluster, [*_spaces(), *_services(), *_secrets(), *(_proxy(number) for number in range(_PROXIES))])
        print(
            f"  created {_PROXIES} HTTPProxies and {3 * _PROXIES} Secrets in {time.monotonic() - began:.0f} s",
            flush=True,
        )
        before = started_here()
        async with _control(cluster, Path(folder)) as control:
            ours = started_here() - before
            print(
                f"  listed, compiled and served after {control.started:.1f} s (limit 20), with "
                f"{seconds_used(ours):.1f} s of processor time and {bytes_resident(ours) / 1e6:.0f} MB (limit 400)",
                flush=True,
            )
            await _statuses(cluster)
            await _changes(cluster, control)
            await _churn(cluster, control, lambda: bytes_resident(ours))


class Control:
    """A control plane that runs as a program."""

    def __init__(self, runtime: Path, server: str) -> None:
        self._runtime, self._server = runtime, server
        self.started = 0.0
        self._rebuilt = asyncio.Condition()
        self._rebuilds = 0

    async def hear(self, line: Line) -> None:
        """Take a line of its log."""
        if '"rebuilt configuration"' in line.text:
            async with self._rebuilt:
                self._rebuilds += 1
                self._rebuilt.notify_all()

    async def rebuilt(self, than: int) -> None:
        """Wait until it has built more configurations."""
        async with asyncio.timeout(_LIMIT), self._rebuilt:
            await self._rebuilt.wait_for(lambda: self._rebuilds > than)

    @property
    def rebuilds(self) -> int:
        """How many it has built."""
        return self._rebuilds

    async def generations(self) -> dict[str, int]:
        """Return the generation of each HTTPProxy that it knows."""
        os.environ["XDG_RUNTIME_DIR"] = str(self._runtime)
        reply = await ask(live_address(root_of(self._server, ClusterPart())), "/status", limit=_LIMIT)
        records = [each for each in json.loads(reply.content) if each["kind"] == "HTTPProxy"]
        return {_key(each): each["status"]["conditions"][0]["observedGeneration"] for each in records}


@asynccontextmanager
async def _control(cluster: Cluster, folder: Path) -> AsyncIterator[Control]:
    control = Control(folder, cluster.url)
    argv = [sys.executable, "-m", "authplane", "control", "--kubernetes", "--kubeconfig", str(cluster.kubeconfig)]
    argv += ["--address", f"unix:{folder}/xds.sock", "--metrics-address", "", "--log-format", "json"]
    argv += ["--state-dir", str(folder / "state"), "--loosen-after", "0"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(folder)}
    began = time.monotonic()
    async with run_process(argv, sink=control.hear, grace=20, environment=environment):
        await control.rebuilt(0)
        control.started = time.monotonic() - began
        yield control


async def _statuses(cluster: Cluster) -> None:
    """Wait until every HTTPProxy has its status."""
    began = time.monotonic()
    while not all(map(_has_status, _listed(cluster))):  # noqa: ASYNC110 (another program writes them)
        await asyncio.sleep(2)
    print(f"  wrote all statuses within {time.monotonic() - began:.0f} s", flush=True)


async def _changes(cluster: Cluster, control: Control) -> None:
    """Change one HTTPProxy at a time."""
    taken, stored = list[float](), list[float]()
    for number in range(_CHANGES):
        before, name = control.rebuilds, number * 97 % _PROXIES
        changed = await asyncio.to_thread(cluster.objects.patch, _proxy(name), _route(f"/change/{number}"))
        began = time.monotonic()
        await control.rebuilt(before)
        taken.append(time.monotonic() - began)
        wanted = changed["metadata"]["generation"]
        while await asyncio.to_thread(_observed, cluster.objects, name) < wanted:  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.01)
        stored.append(time.monotonic() - began)
    print(
        f"  one change to xDS: {_spread(taken)} (limit of p99: 0.5 s); to status: {_spread(stored)} (1 s)", flush=True
    )


async def _churn(cluster: Cluster, control: Control, memory: Callable[[], int]) -> None:
    """Change, delete and create while etcd forgets and the API server restarts; then compare."""
    random, first, restarted = Random(7), memory(), False  # noqa: S311 (no secret)
    began, made = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < _CHURN:
        if elapsed > _CHURN / 2 and not restarted:
            cluster.compact()
            cluster.restart_api_server()
            restarted = True
        number = random.randrange(_PROXIES)
        await asyncio.to_thread(_disturb, cluster.objects, number, made, random.random())
        made += 1
        await asyncio.sleep(max(0.0, made / _PER_SECOND - (time.monotonic() - began)))
    ended = time.monotonic()
    wanted = {_key(each): each["metadata"]["generation"] for each in _listed(cluster)}
    while await control.generations() != wanted:
        if time.monotonic() - ended > _LIMIT:
            raise AssertionError("the control plane has lost a change")
        await asyncio.sleep(0.5)
    print(
        f"  {made} changes in {_CHURN:.0f} s with a compaction and a restart of the API server: none lost, all known "
        f"{time.monotonic() - ended:.1f} s after the last; memory {first / 1e6:.0f} to {memory() / 1e6:.0f} MB",
        flush=True,
    )


def _disturb(objects: ApiObjects, number: int, made: int, draw: float) -> None:
    proxy = _proxy(number)
    if not objects.exists(proxy):
        objects.create(proxy)
    elif draw < 0.2:
        objects.delete(proxy)
    else:
        objects.patch(proxy, _route(f"/churn/{made}"))


def _create_all(cluster: Cluster, objects: Iterable[Object]) -> None:
    with ThreadPoolExecutor(8) as threads:
        for _ in threads.map(cluster.objects.create, objects):
            pass


def _spaces() -> Iterable[Object]:
    for number in range(_NAMESPACES):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns{number}"}}


def _services() -> Iterable[Object]:
    for number in range(_NAMESPACES):
        meta = {"name": "web", "namespace": f"ns{number}"}
        yield {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 80}]}}


def _secrets() -> Iterable[Object]:
    for number in range(3 * _PROXIES):
        meta = {"name": f"s{number}", "namespace": f"ns{number % _NAMESPACES}"}
        data = {
            name: base64.b64encode(os.urandom(size)).decode() for name, size in (("tls.crt", 1100), ("tls.key", 1700))
        }
        yield {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "data": data}


def _proxy(number: int) -> Object:
    return {
        "apiVersion": "projectcontour.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"name": f"p{number}", "namespace": f"ns{number % _NAMESPACES}"},
        "spec": {"virtualhost": {"fqdn": f"h{number}.example"}, **_route("/")["spec"]},
    }


def _route(prefix: str) -> Object:
    return {"spec": {"routes": [{"conditions": [{"prefix": prefix}], "services": [{"name": "web", "port": 80}]}]}}


def _observed(objects: ApiObjects, number: int) -> int:
    conditions = objects.read(_proxy(number)).get("status", {}).get("conditions") or [{}]
    return int(conditions[0].get("observedGeneration", 0))


def _listed(cluster: Cluster) -> list[Any]:
    found: list[Any] = cluster.objects.listed("projectcontour.io/v1", "HTTPProxy")["items"]
    return found


def _has_status(proxy: Object) -> bool:
    """Tell whether a status is ours: the CRD has a default."""
    return str(proxy.get("status", {}).get("currentStatus", _DEFAULT)) != _DEFAULT


def _key(record: Object) -> str:
    return f"{record['metadata']['namespace']}/{record['metadata']['name']}"


def _spread(seconds: list[float]) -> str:
    return f"median {median(seconds) * 1000:.0f} ms, p99 {quantiles(seconds, n=100)[98] * 1000:.0f} ms"
