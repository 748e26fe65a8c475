"""Who is told of every check, and that telling never harms one."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs
from tests.support.authservers.answers import answer
from tests.support.authservers.check_requests import check
from tests.support.authservers.log_lines import Lines

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.check_engine import Answer
from authplane.authserver.records.decision_record import Conclusion, Entry, Record
from authplane.authserver.records.runtime.decision_log import ToFile, open_decision_log
from authplane.authserver.records.runtime.metrics import CheckMetrics, Metrics
from authplane.authserver.records.runtime.observer import Observer
from authplane.authserver.records.runtime.traces import NO_TRACE, CallerTrace
from authplane.policy.check.request import Peer, Request

NOW: Final = 1_767_225_600.0
PATH: Final = TestServer(mode=Mode.PATH)


class Spans:
    """Keeps what it is told."""

    on: Final = True

    def __init__(self) -> None:
        self.told: list[tuple[Record, CallerTrace]] = []

    def tell(self, record: Record, caller: CallerTrace) -> None:
        self.told.append((record, caller))


class BrokenMetrics(CheckMetrics):
    """Can count nothing."""

    def began(self) -> None:
        raise OSError("hunter2")

    def ended(self, conclusion: Conclusion, seconds: float) -> None:
        raise OSError("hunter2")

    def passed(self, conclusion: Conclusion, seconds: float) -> None:
        raise OSError("hunter2")

    def shed(self) -> None:
        raise OSError("hunter2")


class BrokenLines:
    """Can write nothing."""

    def write(self, line: Entry | str) -> None:
        raise OSError("hunter2")


class BrokenSpans:
    """Can trace nothing."""

    on: Final = True

    def tell(self, record: Record, caller: CallerTrace) -> None:
        raise OSError("hunter2")


def _made(path: str, headers: Mapping[str, str] | None = None) -> Answer:
    message = check(path, headers=headers or {"user-agent": "test"})
    return answer(PATH, message.SerializeToString(), datetime.now(UTC))


def _samples(metrics: Metrics) -> dict[str, float]:
    """Return the samples that are not zero, without the latencies."""
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.value and "seconds" not in sample.name and "created" not in sample.name
    }


def test_a_decision_is_written_counted_and_traced() -> None:
    metrics, lines, spans = Metrics(), Lines(), Spans()
    observer = Observer("test", metrics.checks("test"), lines=lines, traces=spans, clock=lambda: NOW)
    caller = CallerTrace(parent="00-1-2-01")
    observer.began()
    assert _samples(metrics) == {"authplane_checks_in_flight test": 1}
    observer.decided(_made("/x?token=1"), 0.002, caller)
    assert _samples(metrics) == {"authplane_checks_total test deny": 1}
    assert lines.written == [
        {
            "time": "2026-01-01T00:00:00.000Z",
            "decision": "deny",
            "status": 401,
            "ms": 2.0,
            "backend": "test",
            "rule": "testserver path",
            "reason": "",
            "identity": "",
            "source": "",
            "id": "7",
            "method": "GET",
            "host": "shop.example",
            "path": "/x",
        }
    ]
    ((record, told),) = spans.told
    assert (record.path, record.decision, told) == ("/x", Conclusion.DENY, caller)


@pytest.mark.parametrize("shown", [True, False])
def test_a_check_that_ends_at_once_is_recorded_like_any_other(*, shown: bool) -> None:
    told = []
    for at_once in (True, False):
        metrics, lines, spans = Metrics(), Lines(), Spans()
        observer = Observer(
            "test",
            metrics.checks("test"),
            lines=lines if shown else None,
            traces=spans if shown else None,
            clock=lambda: NOW,
        )
        if at_once:
            observer.passed(_made("/x"), 0.002)
        else:
            observer.began()
            observer.decided(_made("/x"), 0.002)
        told.append((_samples(metrics), lines.written, [record for record, _ in spans.told]))
    assert told[0] == told[1]
    assert told[0][0] == {"authplane_checks_total test deny": 1}


def _request(path: str, id_: str) -> Request:
    source = Peer(address="192.0.2.7")
    return Request(method="GET", host="a.example", path=path, headers=(("x-request-id", id_),), source=source)


def test_checks_without_a_decision_are_told_of_too() -> None:
    metrics, lines, spans = Metrics(), Lines(), Spans()
    observer = Observer("test", metrics.checks("test"), lines=lines, traces=spans, clock=lambda: NOW)
    observer.began()
    observer.failed(KeyError("hunter2"), 0.001, NO_TRACE, _request("/a?secret", "a-1"))
    observer.began()
    observer.late(0.2, NO_TRACE, _request("/b", "a-2"))
    observer.shed()
    assert [(line["decision"], line["reason"], line["ms"], line["id"]) for line in lines.written] == [
        ("failed", "KeyError", 1.0, "a-1"),
        ("unavailable", "no decision in time", 200.0, "a-2"),
    ]
    assert [(line["method"], line["host"], line["path"], line["source"]) for line in lines.written] == [
        ("GET", "a.example", "/a…", "192.0.2.7"),
        ("GET", "a.example", "/b", "192.0.2.7"),
    ]
    assert [caller for _, caller in spans.told] == [NO_TRACE, NO_TRACE]
    assert _samples(metrics) == {
        "authplane_checks_total test failed": 1,
        "authplane_checks_total test unavailable": 1,
        "authplane_checks_shed_total test": 1,
    }


def _every_call(observer: Observer) -> None:
    observer.began()
    observer.decided(_made("/allow"), 0.001)
    observer.began()
    observer.failed(KeyError("hunter2"), 0.001)
    observer.began()
    observer.late(0.001)
    observer.shed()


ALL: Final = {
    "authplane_checks_total test allow": 1.0,
    "authplane_checks_total test failed": 1.0,
    "authplane_checks_total test unavailable": 1.0,
    "authplane_checks_shed_total test": 1.0,
}


def test_one_that_cannot_be_told_costs_the_others_nothing() -> None:
    metrics, lines, spans = Metrics(), Lines(), Spans()
    with capture_logs() as complaints:
        _every_call(Observer("test", BrokenMetrics(), lines=lines, traces=spans))
        _every_call(Observer("test", metrics.checks("test"), lines=BrokenLines(), traces=spans))
        _every_call(Observer("test", CheckMetrics(), lines=lines, traces=BrokenSpans()))
    assert (len(lines.written), len(spans.told), _samples(metrics)) == (6, 6, ALL)
    assert {each["event"] for each in complaints} == {"failed to record a decision"}
    assert "hunter2" not in str(complaints)


def test_all_that_cannot_be_told_is_harmless() -> None:
    with capture_logs() as complaints:
        _every_call(Observer("test", BrokenMetrics(), lines=BrokenLines(), traces=BrokenSpans()))
    assert len(complaints) == 3 + 3 * 3 + 1


def test_a_check_that_ends_at_once_and_cannot_be_counted_is_harmless() -> None:
    with capture_logs() as complaints:
        Observer("test", BrokenMetrics()).passed(_made("/allow"), 0.001)
    assert [each["event"] for each in complaints] == ["failed to record a decision"]
    assert "hunter2" not in str(complaints)


def test_an_answer_that_cannot_be_described_is_not_in_flight_for_ever() -> None:
    metrics, lines = Metrics(), Lines()
    observer = Observer("test", metrics.checks("test"), lines=lines)
    odd: Any = "not an answer"
    observer.began()
    with capture_logs() as complaints:
        observer.decided(odd, 0.001)
    assert len(complaints) == 1
    assert [(line["decision"], line["reason"]) for line in lines.written] == [
        ("failed", "the decision cannot be described")
    ]
    assert _samples(metrics) == {"authplane_checks_total test failed": 1}


def test_without_log_and_traces_checks_are_counted() -> None:
    metrics = Metrics()
    observer = Observer("test", metrics.checks("test"))
    assert not observer.traces
    _every_call(observer)
    assert _samples(metrics) == ALL


@pytest.mark.requirement("A06")
def test_no_client_can_make_a_new_series() -> None:
    metrics = Metrics()
    observer = Observer("test", metrics.checks("test"))
    observer.began()
    observer.decided(_made("/allow"), 0.001)
    before = metrics.text().count(b"\n")
    for number in range(200):
        observer.began()
        observer.decided(_made(f"/allow/{number}", {"x-request-id": str(number), "authorization": str(number)}), 0.001)
    assert metrics.text().count(b"\n") == before


@pytest.mark.requirement("threat:A10")
async def test_no_sink_contains_a_secret_of_the_client(tmp_path: Path) -> None:
    metrics, spans, path = Metrics(), Spans(), tmp_path / "decisions.log"
    headers = dict.fromkeys(("authorization", "cookie", "x-api-key", "password", "traceparent"), "hunter2")
    with capture_logs() as complaints, open_decision_log(ToFile(path=path), lost=metrics.lines_lost) as log:
        observer = Observer("test", metrics.checks("test"), lines=log, traces=spans)
        observer.began()
        observer.decided(_made("/allow?token=hunter2", headers), 0.001)
        observer.began()
        observer.failed(KeyError("hunter2"), 0.001)
        await asyncio.to_thread(log.close, 5)
    assert path.read_text(encoding="ascii").count("\n") == 2
    for sink in (path.read_text(encoding="ascii"), str(spans.told), metrics.text().decode(), str(complaints)):
        assert "hunter2" not in sink
