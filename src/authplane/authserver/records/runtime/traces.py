"""Traces: a span for each check, in the trace of the caller.

The continued trace is the one in the caller's own message: the metadata of its gRPC call, or the headers of its HTTP
call. A proxy puts the span there in which it waits for us. A ``traceparent`` among the headers of the checked request
comes from the client and is ignored: the client could attach our spans to traces of others. Proxies that forward the
client's headers unchanged, such as nginx, still allow that; then ``OTEL_TRACES_SAMPLER`` should not be one of the
``parentbased`` kind, or the client also chooses what is recorded.

There are spans only if the standard variables name an exporter (``OTEL_TRACES_EXPORTER``, or an endpoint for OTLP);
otherwise not even the library is loaded. OTLP is JSON over HTTP unless a protocol is set: a collector that accepts
protobuf over HTTP accepts JSON too.
"""

import os
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final, Protocol

from authplane.authserver.records.decision_record import Record
from authplane.core.values import dataclass
from authplane.runtime.extras import ExtraMissingError, require_extra

_LONGEST: Final = 512
"""What a caller may send of either field, in characters."""


class TracesUnusableError(Exception):
    """The variables select an exporter that is not available; the message is a sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerTrace:
    """The fields of W3C Trace Context as the caller sent them; they may be invalid."""

    parent: str
    state: str = ""


NO_TRACE: Final = CallerTrace(parent="")
"""The caller sent no trace: a new one begins."""


class Traces(Protocol):
    """Where spans go."""

    @property
    def on(self) -> bool:
        """Whether there is anywhere: if not, a front need not look for the caller's trace."""

    def tell(self, record: Record, caller: CallerTrace) -> None:
        """Make a span of a check that has ended."""


class NoTraces:
    """Traces are off."""

    on: Final = False

    def tell(self, record: Record, caller: CallerTrace) -> None:
        """Do nothing."""


def caller_trace(headers: Collection[tuple[str, str | bytes]]) -> CallerTrace:
    """Find the trace in the headers or the metadata of a call; names are in lower case."""
    parents = [value for name, value in headers if name == "traceparent"]
    # W3C Trace Context, 3.2.1: more than one traceparent is as good as none.
    if len(parents) != 1:
        return NO_TRACE
    states = [value for name, value in headers if name == "tracestate"]
    return CallerTrace(parent=_text(parents[0]), state=",".join(map(_text, states)))


def exporters_in(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Name the exporters that the standard variables select."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    named = [name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "").split(",")]
    # Without a name the standard uses OTLP to this machine; a program must not connect unless configured to.
    if not any(named) and any(environment.get(variable) for variable in _ENDPOINTS):
        named = ["otlp"]
    return tuple(_installed_name(name, environment) for name in named if name not in {"", "none"})


@asynccontextmanager
async def open_traces(environment: Mapping[str, str] = os.environ, *, grace: float = 2.0) -> AsyncGenerator[Traces]:
    """Make spans while the block runs; at its end what is left is sent, within ``grace`` seconds.

    Raises `TracesUnusableError`.
    """
    names = exporters_in(environment)
    if not names:
        yield NoTraces()
        return
    try:
        require_extra("otel", "The export of traces")
    except ExtraMissingError as error:
        raise TracesUnusableError(str(error)) from error
    from authplane.authserver.records.runtime.spans import Spans  # noqa: PLC0415 (loading takes a tenth of a second, and most do not need it)

    spans = Spans.of(names)
    try:
        yield spans
    finally:
        await spans.close(grace)


_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = {"http/json": "otlp_json_http", "http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def _installed_name(name: str, environment: Mapping[str, str]) -> str:
    """Return the name under which the library knows an exporter."""
    if name != "otlp":
        return name
    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/json"
    )
    if protocol not in _PROTOCOLS:
        raise TracesUnusableError(f"{protocol!r} is not an OTLP protocol. Supported: {', '.join(_PROTOCOLS)}.")
    return _PROTOCOLS[protocol]


def _text(value: str | bytes) -> str:
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    return text if len(text) <= _LONGEST else ""
