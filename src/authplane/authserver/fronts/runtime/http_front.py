"""HTTP checks, as nginx ``auth_request``, Traefik ``forwardAuth`` and Envoy's ``http_service`` send them."""

from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from time import perf_counter
from typing import Final, assert_never

from authplane.authserver.engine.backend import Backend
from authplane.authserver.engine.backend_choice import Choice, choice_of
from authplane.authserver.engine.check_engine import Answer, Failed, Pending
from authplane.authserver.engine.http_check import Form, HttpAnswer, Question, check_http
from authplane.authserver.fronts.runtime.answer_checks import Driver, Observing, Perform, Unanswered, no_room
from authplane.authserver.fronts.runtime.asgi_bodies import Bodies, NoRoom, Receive, unless_left
from authplane.authserver.fronts.runtime.asgi_front import Scope, Send
from authplane.authserver.records.runtime.traces import NO_TRACE, CallerTrace, caller_trace
from authplane.runtime.servers.http_server import HttpLimits, HttpRequest, HttpResponse, serve_http
from authplane.runtime.servers.listen import Address

FAILED: Final = HttpResponse(status=403)
"""When the backend raised: a denial. Envoy takes 5xx for "no decision", which a failure policy may turn into a pass."""
UNDECIDED: Final = HttpResponse(status=503)
"""When there are too many checks at a time, or no decision in time."""
_LIMITS: Final = HttpLimits(largest_body=4 * 1024 * 1024)


class HttpChecks:
    """Answers HTTP checks, with a backend or with the one that a choice picks."""

    def __init__(  # noqa: PLR0913 (most have a default)
        self,
        backend: Backend | Choice,
        form: Form,
        *,
        observer: Observing,
        perform: Perform = no_room,
        in_flight: int = 1000,
        limit: float = 10.0,
    ) -> None:
        self._choice = choice_of(backend)
        self._form = form
        self._limit = limit
        self._driver = Driver(observer, perform=perform, in_flight=in_flight)

    async def respond(self, question: Question) -> HttpResponse:
        """Return the response to a check; HTTP has no deadline, so ``limit`` is ours."""
        made = self.begin(question)
        return made if isinstance(made, HttpResponse) else await made

    def begin(self, question: Question) -> HttpResponse | Coroutine[None, None, HttpResponse]:
        """Return the response to a check, or an awaitable of it if the check has to wait."""
        begun = perf_counter()
        made = check_http(self._choice, self._form, question, datetime.now(UTC))
        caller = caller_trace(_texts(question.headers)) if self._driver.observer.traces else NO_TRACE
        match made:
            case HttpAnswer():
                self._driver.decided(_answer_of(made), perf_counter() - begun, caller)
                return _response(made)
            case Failed():
                self._driver.failed(made, perf_counter() - begun, caller)
                return FAILED
            case Pending():
                return self._finish(made, caller)
            case _:
                assert_never(made)

    async def _finish(self, pending: Pending[HttpAnswer], caller: CallerTrace) -> HttpResponse:
        made = await self._driver.run(pending, _answer_of, limit=self._limit, caller=caller)
        return _response(made)


def _response(made: HttpAnswer | Unanswered) -> HttpResponse:
    match made:
        case HttpAnswer(status=status, headers=headers, body=body):
            return HttpResponse(status=status, headers=headers, body=body)
        case Unanswered.FAILED:
            return FAILED
        case Unanswered.SHED | Unanswered.LATE:
            return UNDECIDED
        case _:
            assert_never(made)


def _answer_of(made: HttpAnswer) -> Answer:
    return Answer(made.body, made.request, made.decision, made.backend, made.verdict)


def _texts(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str | bytes]]:
    return [(name.decode("latin-1").lower(), value) for name, value in headers]


class HttpApplication:
    """HTTP checks as an ASGI application."""

    def __init__(self, checks: HttpChecks, *, largest_body: int) -> None:
        self._checks = checks
        self._largest = largest_body
        self._bodies = Bodies(largest=largest_body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one check."""
        body = await self._bodies.read(receive)
        if body is None:
            return
        if isinstance(body, NoRoom):
            response: HttpResponse | None = UNDECIDED
        elif len(body) > self._largest:
            response = HttpResponse(status=413)
        else:
            made = self._checks.begin(_question(scope, body))
            response = made if isinstance(made, HttpResponse) else await unless_left(made, receive)
        if response is None:
            return
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

    return serve_http(address, respond, limits=limits or _LIMITS)


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
