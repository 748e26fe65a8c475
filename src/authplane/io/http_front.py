"""HTTP checks: what nginx ``auth_request``, Traefik ``forwardAuth`` and Envoy's ``http_service`` ask."""

import asyncio
import contextlib
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import Final

import structlog

from authplane.io.asgi import Receive, Scope, Send, read_body
from authplane.io.checks import Decided, Perform, no_room
from authplane.io.http import HttpLimits, HttpRequest, HttpResponse, serve_http
from authplane.io.listen import Address
from authplane.io.process import place_of
from authplane.policy.engine import Answer, Backend
from authplane.policy.flow import Effect, Outcome
from authplane.policy.http_check import Form, HttpAnswer, Question, check_http

_log: Final = structlog.stdlib.get_logger()

FAILED: Final = HttpResponse(status=403)
"""When the backend raised: a denial. Envoy takes 5xx for "no decision", which a failure policy may turn into a pass."""
UNDECIDED: Final = HttpResponse(status=503)
"""When there are too many checks at a time, or no decision in time."""


class HttpChecks:
    """Answers HTTP checks with a backend, at most so many at a time."""

    def __init__(  # noqa: PLR0913 (each has its default but two)
        self,
        backend: Backend,
        form: Form,
        *,
        decided: Decided,
        perform: Perform = no_room,
        in_flight: int = 1000,
        limit: float = 10.0,
    ) -> None:
        self._backend = backend
        self._form = form
        self._decided = decided
        self._perform = perform
        self._most = in_flight
        self._limit = limit
        self._waiting = 0

    async def respond(self, question: Question) -> HttpResponse:
        """Return the response to a question; HTTP tells no deadline, so that ``limit`` is ours."""
        flow = check_http(self._backend, self._form, question, datetime.now(UTC))
        try:
            effect = next(flow)
        except StopIteration as finished:
            return self._told(finished.value)
        except Exception as error:  # noqa: BLE001 (a failed check must become an answer that does not allow)
            return self._failed(error)
        with contextlib.closing(flow):
            return await self._wait(flow, effect)

    async def _wait(self, flow: Generator[Effect, Outcome, HttpAnswer], effect: Effect) -> HttpResponse:
        if self._waiting >= self._most:
            return UNDECIDED
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limit):
                while True:
                    effect = flow.send(await self._perform(effect))
        except StopIteration as finished:
            return self._told(finished.value)
        except TimeoutError:
            return UNDECIDED
        except Exception as error:  # noqa: BLE001 (as above)
            return self._failed(error)
        finally:
            self._waiting -= 1

    def _told(self, made: HttpAnswer) -> HttpResponse:
        try:
            self._decided(Answer(reply=made.body, request=made.request, decision=made.decision))
        except Exception as error:  # noqa: BLE001 (a decision holds even if it cannot be told)
            _complain("decision not recorded", error)
        return HttpResponse(status=made.status, headers=made.headers, body=made.body)

    def _failed(self, error: Exception) -> HttpResponse:
        _complain("check", error, decision="failed", backend=self._backend.name)
        return FAILED


class HttpApplication:
    """HTTP checks as an ASGI application."""

    def __init__(self, checks: HttpChecks, *, largest_body: int) -> None:
        self._checks = checks
        self._largest = largest_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one question."""
        body = await read_body(receive, self._largest)
        if body is None:
            return
        response = HttpResponse(status=413)
        if len(body) <= self._largest:
            response = await self._checks.respond(_question(scope, body))
        length = (b"content-length", b"%d" % len(response.body))
        headers = [(name.lower().encode("ascii"), value.encode("ascii")) for name, value in response.headers]
        await send({"type": "http.response.start", "status": response.status, "headers": [*headers, length]})
        shown = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": shown, "more_body": False})


def serve_http_checks(
    checks: HttpChecks, address: Address, *, limits: HttpLimits | None = None
) -> AbstractAsyncContextManager[Address]:
    """Serve HTTP checks while the block runs; yields the address with the port that was really taken."""

    async def respond(request: HttpRequest) -> HttpResponse:
        raw = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers)
        question = Question(method=request.method, target=request.target, headers=raw, body=request.body)
        return await checks.respond(question)

    return serve_http(address, respond, limits=limits or HttpLimits())


def _question(scope: Scope, body: bytes) -> Question:
    """Take the path as it came: what is decoded or normalized is not what the proxy routes by."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    target = path + b"?" + query if query and b"?" not in path else path
    return Question(
        method=scope["method"],
        target=target.decode("latin-1"),
        # Envoy takes this header for the scheme, and pyvoy leaves it out.
        headers=(*scope["headers"], (b"x-forwarded-proto", scope["scheme"].encode("ascii"))),
        body=body,
    )


def _complain(what: str, error: Exception, **more: str) -> None:
    with contextlib.suppress(Exception):
        _log.error(what, error=place_of(error), **more)
