"""Checks over plain HTTP: one request describes another, and the status of the response is the decision.

Proxies take 200 for "allow" and everything else for a denial, with one exception: Envoy takes 5xx for "no decision" and
may then allow the call. So only `Unavailable` has a 5xx status.
"""

import re
from collections.abc import Generator, Iterable
from datetime import datetime
from typing import Final, TypeAlias, assert_never

from authplane.authserver.engine.backend import Judgement, JudgementFlow
from authplane.authserver.engine.backend_choice import Choice
from authplane.authserver.engine.check_engine import Failed, Pending
from authplane.authserver.engine.replies import sendable_form
from authplane.core.values import dataclass
from authplane.policy.check.answer_headers import fit_name
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.request import Malformed, Request
from authplane.policy.verdicts.effects import Effect, Outcome
from authplane.policy.verdicts.verdict import Verdict

_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f]")
_HOST: Final = re.compile(r"[0-9A-Za-z._~%!$&'()*+,;=:\[\]-]*")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_REMOVE: Final = "x-envoy-auth-headers-to-remove"
"""How a server tells Envoy which headers of the request must not go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SameRequest:
    """The check has the method, path, host and headers of the request itself, as Envoy sends it."""

    prefix: str = ""
    """The prefix that the proxy adds to the path; a check without it is malformed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardedHeaders:
    """The check names the request in ``X-Forwarded-Method``, ``-Proto``, ``-Host`` and ``-Uri``, as Traefik does.

    Only for a proxy that replaces these headers of the client.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginalHeaders:
    """The check names the request in ``X-Original-Method`` and ``X-Original-URL``, as nginx is configured.

    Only for a proxy that replaces these headers of the client.
    """


Form: TypeAlias = SameRequest | ForwardedHeaders | OriginalHeaders
"""The form of checks. It is configured and never guessed: unexpected headers have no meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An HTTP request as it came."""

    method: str
    target: str
    """Path and query, as they came."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The response to a check, with what led to it."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    request: Request | Malformed
    decision: Decision
    """The decision in the response."""
    backend: str = ""
    """The name of the backend that decided; `NOBODY` if a choice picked none."""
    verdict: Verdict | None = None
    """The grounds of the decision, if the backend reports them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """The request that a check describes."""

    method: str
    scheme: str
    host: str
    target: str
    unseen: frozenset[str] = frozenset()
    """Headers of the check that are not headers of the request."""


def check_http(
    choice: Choice, form: Form, question: Question, now: datetime
) -> HttpAnswer | Pending[HttpAnswer] | Failed:
    """Decide a check: at once, or in a flow if the backend requires an effect first. It does not raise."""
    name = choice.nobody
    request: Request | Malformed | None = None
    try:
        request = parse_question(form, question)
        if isinstance(request, Malformed):
            return render_answer(request, Deny(http_status=400, body=f"{request.reason}\n", rule="malformed"), name)
        picked = choice.pick(request)
        if isinstance(picked, Deny):
            return render_answer(request, picked, name)
        name = picked.name
        judged = picked.backend.decide(request, now)
        if isinstance(judged, (Verdict, Allow, Deny, Unavailable)):
            return render_answer(request, judged, name)
        return Pending(name, _await(request, judged, name), request)
    except Exception as error:  # noqa: BLE001 (a fault of a backend must become an answer that does not allow)
        return Failed(name, error, request)


def _await(request: Request, flow: JudgementFlow, name: str) -> Generator[Effect, Outcome, HttpAnswer]:
    return render_answer(request, (yield from flow), name)


def parse_question(form: Form, question: Question) -> Request | Malformed:
    """Return the request that a check describes; a missing or ambiguous part makes it malformed."""
    headers = tuple((_text(name).lower(), _text(value)) for name, value in question.headers)
    asked = _asked(form, question, headers)
    if isinstance(asked, str):
        return Malformed(reason=asked)
    path, _, query = asked.target.partition("?")
    fault = _fault(asked, path) or _header_fault(headers)
    if fault:
        return Malformed(reason=fault)
    return Request(
        method=asked.method,
        scheme=asked.scheme,
        host=asked.host,
        path=path,
        query=query,
        headers=tuple(pair for pair in headers if pair[0] not in asked.unseen),
        body=question.body,
    )


def render_answer(request: Request | Malformed, judged: Judgement, backend: str = "") -> HttpAnswer:
    """Build the response; only an `Allow` has the status 200."""
    verdict, decision = (judged, judged.decision) if isinstance(judged, Verdict) else (None, judged)
    sendable = sendable_form(decision)
    status, headers, body = _parts(sendable)
    return HttpAnswer(
        status=status,
        headers=headers,
        body=body,
        request=request,
        decision=sendable,
        backend=backend,
        verdict=verdict,
    )


def _parts(decision: Decision) -> tuple[int, tuple[tuple[str, str], ...], bytes]:
    """Return the status, the headers and the body of a response."""
    match decision:
        case Allow(edits=edits, response_headers=added):
            kept = {name.lower() for name, _ in edits.set}
            removed = [name for name in edits.remove if name.lower() not in kept]
            orders = ((_REMOVE, ",".join(removed)),) if removed else ()
            return 200, (*edits.set, *added, *orders), b""
        case Deny(http_status=status, headers=headers, body=body):
            # A denial with status 200 and an error in its body would allow here, and 5xx would be no decision.
            told = status if 300 <= status < 500 else 403
            text = (*headers, ("content-type", "text/plain; charset=utf-8")) if _untyped(headers, body) else headers
            return told, text, body.encode(errors="replace")
        case Unavailable(headers=headers, body=body):
            return 503, headers, body.encode(errors="replace")
        case _:
            assert_never(decision)


def _asked(form: Form, question: Question, headers: tuple[tuple[str, str], ...]) -> _Asked | str:
    """Return the request that a check describes, or what is wrong with the check."""
    match form:
        case SameRequest(prefix=prefix):
            return _same(prefix, question, headers)
        case ForwardedHeaders():
            return _forwarded(headers)
        case OriginalHeaders():
            return _original(headers)
        case _:
            assert_never(form)


def _same(prefix: str, question: Question, headers: tuple[tuple[str, str], ...]) -> _Asked | str:
    host = _only(headers, "host", ":authority")
    if host is None:
        return "the request has no host, or more than one"
    if not question.target.startswith(prefix):
        return "the path does not start with the prefix"
    # The scheme stays unknown: all that could tell it is a header of the client.
    return _Asked(method=question.method, scheme="", host=host, target=question.target.removeprefix(prefix))


def _forwarded(headers: tuple[tuple[str, str], ...]) -> _Asked | str:
    names = ("x-forwarded-method", "x-forwarded-proto", "x-forwarded-host", "x-forwarded-uri")
    found = []
    for name in names:
        value = _only(headers, name)
        if not value:
            return f"the header {name} is missing, empty or repeated"
        found.append(value)
    method, scheme, host, target = found
    return _Asked(method=method, scheme=scheme, host=host, target=target, unseen=frozenset({*names, "host"}))


def _original(headers: tuple[tuple[str, str], ...]) -> _Asked | str:
    method, url = _only(headers, "x-original-method"), _only(headers, "x-original-url")
    if not method or not url:
        return "the header x-original-method or x-original-url is missing, empty or repeated"
    # Not a URL parser: the path must be what the proxy routes by, to the letter.
    scheme, separator, rest = url.partition("://")
    host, slash, target = rest.partition("/")
    if not separator or not slash or not host or not _SCHEME.fullmatch(scheme):
        return "the header x-original-url is not scheme://host/path"
    unseen = frozenset({"x-original-method", "x-original-url", "host"})
    return _Asked(method=method, scheme=scheme, host=host, target=f"/{target}", unseen=unseen)


def _only(headers: Iterable[tuple[str, str]], *names: str) -> str | None:
    """Return the one value of a header, or None if there is not just one; spellings with underscores count."""
    values = [value for name, value in headers if name.replace("_", "-") in names]
    return values[0] if len(values) == 1 else None


def _fault(asked: _Asked, path: str) -> str:
    for what, value in (("method", asked.method), ("path", asked.target)):
        if not value:
            return f"the request has no {what}"
        if _UNPRINTABLE.search(value):
            return f"the {what} has a space or a control character"
    if not fit_name(asked.method):
        return "the method is not valid"
    if "#" in asked.target:
        return "the path has a fragment"
    if not _HOST.fullmatch(asked.host):
        return "the host has an invalid character"
    return "" if path.startswith("/") or path == "*" else "the path does not start with a slash"


def _header_fault(headers: tuple[tuple[str, str], ...]) -> str:
    for name, value in headers:
        if not fit_name(name.removeprefix(":")):
            return "a header has an invalid name"
        if "\r" in value or "\n" in value or "\0" in value:
            return "a header has an invalid value"
    return ""


def _text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


def _untyped(headers: tuple[tuple[str, str], ...], body: str) -> bool:
    return bool(body) and all(name.lower() != "content-type" for name, _ in headers)
