"""One check without the network: bytes in, bytes out."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

from envoy.service.auth.v3 import external_auth_pb2

from authplane.authserver.backends.testserver import Mode, TestServer
from authplane.authserver.engine.check_engine import Answer, CheckEngine

_ROUNDS = 20_000


async def main() -> None:
    """Measure the engine against what parsing and building the two messages costs anyway."""
    body = _request()
    check, now = CheckEngine(TestServer(mode=Mode.ALL)).check, datetime.now(UTC)
    engine = _timed(lambda: check(body, now))
    made = check(body, now)
    if not isinstance(made, Answer):
        raise TypeError(made)
    reply = made.reply
    messages = _timed(
        lambda: (
            external_auth_pb2.CheckRequest.FromString(body),
            external_auth_pb2.CheckResponse.FromString(reply).SerializeToString(),
        )
    )
    print(
        f"  engine {engine * 1e6:.0f} µs a check, protobuf alone {messages * 1e6:.0f} µs "
        f"(ratio {engine / messages:.1f})",
        flush=True,
    )


def _request() -> bytes:
    message = external_auth_pb2.CheckRequest()
    http = message.attributes.request.http
    http.method, http.path, http.host, http.scheme = "GET", "/allow?x=1", "web.example", "https"
    for index in range(12):
        http.headers[f"x-header-{index}"] = f"value-{index}"
    message.attributes.context_extensions["tenant"] = "blue"
    return message.SerializeToString()


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    for _ in range(_ROUNDS):
        call()
    return (time.perf_counter() - begun) / _ROUNDS
