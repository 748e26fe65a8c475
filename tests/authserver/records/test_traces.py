"""Traces, as a collector receives them."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from tests.support.eventually import START_LIMIT

from authplane.authserver.records.decision_record import Conclusion, Record
from authplane.authserver.records.runtime.traces import (
    NO_TRACE,
    CallerTrace,
    NoTraces,
    Traces,
    TracesUnusableError,
    caller_trace,
    exporters_in,
    open_traces,
)
from authplane.runtime.servers.http_server import HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import TcpAddress

HERE: Final = TcpAddress(host="127.0.0.1", port=0)
TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
SPAN: Final = "b7ad6b7169203331"
PARENT: Final = f"00-{TRACE}-{SPAN}-01"
RECORD: Final = Record(
    time=1_767_225_600.5,
    seconds=0.25,
    backend="test",
    decision=Conclusion.DENY,
    status=401,
    path="/a",
    host="shop.example",
    method="GET",
    id="7",
    source="192.0.2.1",
    identity="ann",
    rule="basic",
    reason="",
)


class Collector:
    """Receives OTLP over HTTP."""

    def __init__(self) -> None:
        self.received: list[HttpRequest] = []

    def respond(self, request: HttpRequest) -> HttpResponse:
        self.received.append(request)
        return HttpResponse(status=200, headers=(("content-type", "application/json"),), body=b"{}")

    @property
    def batches(self) -> list[dict[str, Any]]:
        return [batch for request in self.received for batch in json.loads(request.body)["resourceSpans"]]

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [span for batch in self.batches for scope in batch["scopeSpans"] for span in scope["spans"]]


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@asynccontextmanager
async def _traces(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Traces, Collector]]:
    collector = Collector()
    async with serve_http(HERE, collector.respond) as address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address}")
        async with open_traces(grace=5) as traces:
            yield traces, collector


def _value(attribute: Mapping[str, Any]) -> object:
    return next(iter(attribute["value"].values()))


async def test_a_check_is_a_span_of_the_callers_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _traces(monkeypatch) as (traces, collector):
        assert traces.on
        traces.tell(RECORD, CallerTrace(parent=PARENT, state="vendor=1"))
    (span,) = collector.spans
    assert len(span.pop("spanId")) == 16
    assert {attribute["key"]: _value(attribute) for attribute in span.pop("attributes")} == {
        "authplane.backend": "test",
        "authplane.decision": "deny",
        "authplane.rule": "basic",
        "authplane.request.id": "7",
        "client.address": "192.0.2.1",
        "enduser.id": "ann",
        "http.request.method": "GET",
        "http.response.status_code": "401",
        "server.address": "shop.example",
        "url.path": "/a",
    }
    told = {name: span[name] for name in ("traceId", "parentSpanId", "traceState", "name", "kind", "status")}
    assert told == {
        "traceId": TRACE,
        "parentSpanId": SPAN,
        "traceState": "vendor=1",
        "name": "check",
        "kind": 2,
        "status": {},
    }
    assert (span["startTimeUnixNano"], span["endTimeUnixNano"]) == ("1767225600250000000", "1767225600500000000")
    assert [
        _value(each) for each in collector.batches[0]["resource"]["attributes"] if each["key"] == "service.name"
    ] == ["authplane"]
    assert [request.target for request in collector.received] == ["/v1/traces"]


async def test_without_a_decision_the_span_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _traces(monkeypatch) as (traces, collector):
        for conclusion in (Conclusion.UNAVAILABLE, Conclusion.FAILED):
            traces.tell(RECORD._replace(decision=conclusion, reason="no keys"), NO_TRACE)
    assert [span["status"] for span in collector.spans] == [{"message": "no keys", "code": 2}] * 2


@pytest.mark.parametrize("parent", ["", "00-0-0-01", f"00-{'0' * 32}-{SPAN}-01", "x" * 400, "\udcff"])
async def test_a_trace_that_is_none_begins_a_new_one(monkeypatch: pytest.MonkeyPatch, parent: str) -> None:
    async with _traces(monkeypatch) as (traces, collector):
        traces.tell(RECORD, CallerTrace(parent=parent))
    (span,) = collector.spans
    assert span.get("parentSpanId", "") == ""
    assert span["traceId"] != TRACE


async def test_a_trace_that_the_caller_does_not_record_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _traces(monkeypatch) as (traces, collector):
        traces.tell(RECORD, CallerTrace(parent=f"00-{TRACE}-{SPAN}-00"))
    assert collector.received == []


async def test_the_name_of_the_service_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "gate")
    async with _traces(monkeypatch) as (traces, collector):
        traces.tell(RECORD, NO_TRACE)
    names = [_value(each) for each in collector.batches[0]["resource"]["attributes"] if each["key"] == "service.name"]
    assert names == ["gate"]


async def test_a_missing_collector_does_not_delay_the_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve_http(HERE, lambda _: HttpResponse(status=200)) as free:
        pass
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{free}")
    async with asyncio.timeout(5):
        async with open_traces(grace=0.1) as traces:
            traces.tell(RECORD, NO_TRACE)


async def test_traces_are_off_unless_asked_for() -> None:
    async with open_traces({}) as traces:
        assert isinstance(traces, NoTraces)
        assert not traces.on
        traces.tell(RECORD, NO_TRACE)


@pytest.mark.real
def test_the_library_is_not_loaded_unless_asked_for() -> None:
    program = (
        "import sys, authplane.authserver.records.runtime.traces; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=START_LIMIT
    )
    assert done.stdout == "[]\n"


EXPORTERS: Final[dict[str, tuple[dict[str, str], tuple[str, ...]]]] = {
    "nothing is set": ({}, ()),
    "an exporter": ({"OTEL_TRACES_EXPORTER": "console"}, ("console",)),
    "several": ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ("console", "otlp_json_http")),
    "none": ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ()),
    "an endpoint": ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, ("otlp_json_http",)),
    "an endpoint for traces": ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, ("otlp_json_http",)),
    "empty means not set": ({"OTEL_TRACES_EXPORTER": "", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ()),
    "switched off": ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "True"}, ()),
    "a protocol": ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ("otlp_proto_grpc",)),
    "the protocol for traces comes first": (
        {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
        },
        ("otlp_proto_http",),
    ),
}


@pytest.mark.parametrize(("environment", "want"), EXPORTERS.values(), ids=EXPORTERS.keys())
def test_exporters_in(environment: dict[str, str], want: tuple[str, ...]) -> None:
    assert exporters_in(environment) == want


UNUSABLE: Final = {
    "an unknown exporter": (
        {"OTEL_TRACES_EXPORTER": "carrier-pigeon"},
        "'carrier-pigeon' is not installed. Supported: ",
    ),
    "a protocol that is not installed": (
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        "'otlp_proto_grpc' is not installed",
    ),
    "an unknown protocol": (
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "smtp"},
        "'smtp' is not an OTLP protocol. Supported: http/json, http/protobuf, grpc.",
    ),
}


@pytest.mark.parametrize(("environment", "message"), UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_what_cannot_be_had_is_one_sentence(environment: dict[str, str], message: str) -> None:
    with pytest.raises(TracesUnusableError, match=message):
        async with open_traces(environment):
            pass


CALLERS: Final[dict[str, tuple[Collection[tuple[str, str | bytes]], CallerTrace]]] = {
    "nothing": ((), NO_TRACE),
    "a parent": ((("a", "b"), ("traceparent", PARENT)), CallerTrace(parent=PARENT)),
    "bytes": ((("traceparent", PARENT.encode()),), CallerTrace(parent=PARENT)),
    "a state": (
        (("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")),
        CallerTrace(parent=PARENT, state="a=1,b=2"),
    ),
    "a state alone": ((("tracestate", "a=1"),), NO_TRACE),
    "two parents": ((("traceparent", PARENT), ("traceparent", PARENT)), NO_TRACE),
    "a parent that is too long": ((("traceparent", "0" * 513),), NO_TRACE),
    "a state that is too long": ((("traceparent", PARENT), ("tracestate", "0" * 513)), CallerTrace(parent=PARENT)),
}


@pytest.mark.parametrize(("headers", "want"), CALLERS.values(), ids=CALLERS.keys())
def test_caller_trace(headers: Collection[tuple[str, str | bytes]], want: CallerTrace) -> None:
    assert caller_trace(headers) == want
