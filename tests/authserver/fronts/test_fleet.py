"""Workers asked as one, over the sockets that they have."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from authplane.authserver.fronts.runtime.pyvoy.fleet import Fleet
from authplane.authserver.records.decision_record import Conclusion
from authplane.authserver.records.runtime.joined_metrics import join_metrics
from authplane.authserver.records.runtime.metrics import Metrics
from authplane.runtime.servers.admin import Obstacle, admin_pages
from authplane.runtime.servers.http_server import HttpLimits, HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import UnixAddress


def count(metrics: Metrics, checks: int, *, begun: int = 0) -> None:
    counted = metrics.checks("a")
    for number in range(checks + begun):
        counted.began()
        if number < checks:
            counted.ended(Conclusion.ALLOW, 0.001)


def samples(text: bytes) -> dict[str, float]:
    """Return what is not zero, without most of the latencies."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.value and ("_bucket" not in sample.name or sample.labels["le"] == "+Inf") and "sum" not in sample.name
    }


class Worker:
    """A worker without an Envoy: what it tells of itself."""

    def __init__(self, folder: Path, number: int, front: str = "grpc") -> None:
        self.socket = str(folder / f"{front}-{number}.sock")
        self.number = number
        self.front = front
        self.metrics = Metrics()
        self.obstacle = ""

    @asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        parts: dict[str, Obstacle] = {"users": lambda: self.obstacle}
        async with serve_http(UnixAddress(path=self.socket), admin_pages(self.metrics, parts)):
            yield

    @asynccontextmanager
    async def running(self, fleet: Fleet) -> AsyncGenerator[None]:
        async with self.answering():
            with fleet.member(self.front, self.number, self.socket):
                yield


def test_counters_histograms_and_gauges_are_added_up() -> None:
    one, other = Metrics(), Metrics()
    count(one, 2, begun=1)
    count(other, 3)
    other.checks("b").shed()
    joined = join_metrics((one.text(), b"", other.text()))
    assert samples(joined) == {
        "authplane_checks_total a allow": 5,
        "authplane_check_seconds_bucket a +Inf": 5,
        "authplane_check_seconds_count a": 5,
        "authplane_checks_in_flight a": 1,
        "authplane_checks_shed_total b": 1,
    }
    assert join_metrics((joined,)) == joined
    assert "authplane_checks_in_flight a" not in samples(join_metrics((joined,), lasting=True))


async def test_counts_of_workers_and_parent_are_reported_together(tmp_path: Path) -> None:
    own = Metrics()
    own.lines_lost(7)
    fleet = Fleet(own)
    first, second, http = Worker(tmp_path, 0), Worker(tmp_path, 1), Worker(tmp_path, 0, "http")
    async with first.running(fleet), second.running(fleet), http.running(fleet):
        for number, worker in enumerate((first, second, http)):
            count(worker.metrics, number + 1, begun=1)
        assert samples(await fleet.text()) == {
            "authplane_checks_total a allow": 6,
            "authplane_check_seconds_bucket a +Inf": 6,
            "authplane_check_seconds_count a": 6,
            "authplane_checks_in_flight a": 3,
            "authplane_log_lines_lost_total": 7,
            "authplane_workers grpc": 2,
            "authplane_workers http": 1,
        }


async def test_no_counter_goes_back_when_a_worker_is_replaced(tmp_path: Path) -> None:
    fleet = Fleet(Metrics())
    told = []

    async def tell() -> None:
        found = samples(await fleet.text())
        names = (
            "authplane_checks_total a allow",
            "authplane_checks_in_flight a",
            "authplane_worker_restarts_total grpc",
        )
        told.append(tuple(found.get(name, 0) for name in names))

    for checks in (5, 0, 2):
        worker = Worker(tmp_path, 0)
        async with worker.running(fleet):
            count(worker.metrics, checks, begun=1)
            await tell()
        await tell()
    assert told == [(5, 1, 0), (5, 0, 0), (5, 1, 1), (5, 0, 1), (7, 1, 2), (7, 0, 2)]


async def test_a_worker_that_does_not_answer_counts_as_it_last_did(tmp_path: Path) -> None:
    fleet, worker = Fleet(Metrics()), Worker(tmp_path, 0)
    with fleet.member("grpc", 0, worker.socket):
        async with worker.answering():
            count(worker.metrics, 3)
            await fleet.text()
        found = samples(await fleet.text())
    assert (found["authplane_checks_total a allow"], found.get("authplane_workers grpc")) == (3, None)


@pytest.mark.slow
async def test_a_hanging_worker_delays_no_client_for_long(tmp_path: Path) -> None:
    async def hang(_: HttpRequest) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    fleet, socket = Fleet(Metrics()), str(tmp_path / "stuck")
    async with (
        serve_http(UnixAddress(path=socket), hang, limits=HttpLimits(grace=0)),
        Worker(tmp_path, 1).running(fleet),
    ):
        with fleet.member("grpc", 0, socket):
            async with asyncio.timeout(5):
                assert samples(await fleet.text())["authplane_workers grpc"] == 1
                assert await fleet.obstacle("grpc")() == ""


async def test_what_was_counted_shortly_before_a_worker_was_killed_is_known(tmp_path: Path) -> None:
    fleet, worker = Fleet(Metrics()), Worker(tmp_path, 0)
    seen = asyncio.Event()
    pages = admin_pages(worker.metrics, {})

    async def respond(request: HttpRequest) -> HttpResponse:
        seen.set()
        return await pages(request)

    count(worker.metrics, 4)
    async with fleet.followed(period=0.01):
        async with serve_http(UnixAddress(path=worker.socket), respond):
            with fleet.member("grpc", 0, worker.socket):
                for _ in range(2):  # the first answer was taken when the second is asked for
                    seen.clear()
                    async with asyncio.timeout(5):
                        await seen.wait()
        assert samples(await fleet.text())["authplane_checks_total a allow"] == 4


async def test_a_front_is_ready_with_its_first_ready_worker_and_says_what_keeps_the_others(tmp_path: Path) -> None:
    fleet = Fleet(Metrics())
    obstacle = fleet.obstacle("grpc")
    assert await obstacle() == "no worker is running"
    first, second, http = Worker(tmp_path, 0), Worker(tmp_path, 1), Worker(tmp_path, 0, "http")
    first.obstacle = "no file"
    async with first.running(fleet), http.running(fleet):
        with fleet.member("grpc", 1, second.socket):
            assert await obstacle() == "worker 0: users: no file, worker 1: does not respond"
        async with second.running(fleet):
            assert await obstacle() == ""
        assert await fleet.obstacle("http")() == ""
