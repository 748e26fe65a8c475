"""Spans made with the OpenTelemetry SDK; loaded only where traces are on."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from typing import Final, Self

from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from authplane.authserver.records.decision_record import Conclusion, Record
from authplane.authserver.records.runtime.traces import CallerTrace, TracesUnusableError

_GROUP: Final = "opentelemetry_traces_exporter"
_NOWHERE: Final = Context()
_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Spans:
    """Makes a span of every check and sends them in batches, from a thread of the SDK."""

    on: Final = True

    def __init__(self, exporters: Sequence[SpanExporter]) -> None:
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        for exporter in exporters:
            self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("authplane")

    @classmethod
    def of(cls, names: Sequence[str]) -> Self:
        """Make spans for installed exporters, which read their own variables; raises `TracesUnusableError`."""
        return cls([_exporter(name) for name in names])

    def tell(self, record: Record, caller: CallerTrace) -> None:
        """Make a span of a check that has ended: its own time is in the record."""
        carrier = {"traceparent": caller.parent, "tracestate": caller.state}
        parent = _PROPAGATOR.extract(carrier, context=_NOWHERE) if caller.parent else _NOWHERE
        ended = int(record.time * 1e9)
        span = self._tracer.start_span(
            "check",
            context=parent,
            kind=SpanKind.SERVER,
            attributes=_attributes(record),
            start_time=ended - int(record.seconds * 1e9),
        )
        if record.decision in {Conclusion.UNAVAILABLE, Conclusion.FAILED}:
            span.set_status(Status(StatusCode.ERROR, record.reason))
        span.end(ended)

    async def close(self, grace: float) -> None:
        """Send what is left, within ``grace`` seconds."""
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()

        def close() -> None:
            self._provider.shutdown()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(closed.set)

        # A thread that ends with the process: the SDK may wait half a minute for a collector that does not answer.
        threading.Thread(target=close, name="traces", daemon=True).start()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await closed.wait()


def _exporter(name: str) -> SpanExporter:
    found = entry_points(group=_GROUP, name=name)
    if not found:
        known = ", ".join(sorted({each.name for each in entry_points(group=_GROUP)}))
        raise TracesUnusableError(f"The trace exporter {name!r} is not installed. Supported: {known}.")
    try:
        made = next(iter(found)).load()()
    except (ImportError, OSError, TypeError, ValueError) as error:
        said = f"The trace exporter {name!r} cannot be loaded: {error}."
        raise TracesUnusableError(f"{said} Correct the environment variables that begin with OTEL_.") from error
    if not isinstance(made, SpanExporter):
        raise TracesUnusableError(f"{name!r} is not a trace exporter. Correct OTEL_TRACES_EXPORTER.")
    return made


def _resource() -> Resource:
    """Say who we are, unless the variables do."""
    found = Resource.create()
    unnamed = str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service")
    return found.merge(Resource({SERVICE_NAME: "authplane"})) if unnamed else found


def _attributes(record: Record) -> dict[str, str | int]:
    """Name what is known by the conventions of OpenTelemetry, and by names of ours where there are none."""
    named: dict[str, str | int | None] = {
        "authplane.backend": record.backend,
        "authplane.decision": record.decision.value,
        "authplane.rule": record.rule,
        "authplane.reason": record.reason,
        "authplane.request.id": record.id,
        "client.address": record.source,
        "enduser.id": record.identity,
        "http.request.method": record.method,
        "http.response.status_code": record.status,
        "server.address": record.host,
        "url.path": record.path,
    }
    return {name: value for name, value in named.items() if value is not None and value != ""}
