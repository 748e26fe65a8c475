"""The record of a decision: one line of JSON.

A line has the caller, the request and the decision. It omits where clients usually put secrets: the query, the body and
every header except the request id. Shown values are cut and escaped, without parts that are known to carry secrets: the
parameters of a path and the user part of a host. The path itself is shown, so a token must not be part of one.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from json.encoder import encode_basestring_ascii as quoted
from typing import Final, NamedTuple, TypeAlias, assert_never

from authplane.authserver.engine.check_engine import Answer
from authplane.core.problems import printable
from authplane.core.text import shorten
from authplane.policy.check.decision import Allow, Decision, Deny, Unavailable
from authplane.policy.check.decision_id import decision_id
from authplane.policy.check.request import Malformed, Request
from authplane.policy.verdicts.verdict import Grounds, Shadowed


class Conclusion(StrEnum):
    """How a check ended."""

    ALLOW = "allow"
    DENY = "deny"
    UNAVAILABLE = "unavailable"
    """There was no decision: the backend could not tell, or not in time."""
    FAILED = "failed"
    """The backend raised: a fault of ours."""

    # Equal to its text, and so hashed like it: what an enumeration does instead costs as much as counting a check.
    __hash__ = str.__hash__


_ALLOW: Final = Conclusion.ALLOW
_DENY: Final = Conclusion.DENY
_UNAVAILABLE: Final = Conclusion.UNAVAILABLE
"""Looked up once: to find a member costs as much as to format a number."""


class Record(NamedTuple):
    """One decision, fit to be shown. A tuple and no dataclass: every check makes one, and this is made faster."""

    time: float
    """When it was made, in seconds since 1970."""
    seconds: float
    """How long it took."""
    backend: str
    decision: Conclusion
    status: int | None
    """The HTTP status that we give the client; None if the request goes on."""
    path: str
    host: str
    method: str
    id: str
    """What the proxy calls the request, in its own log too."""
    source: str
    """The address that the connection came from."""
    identity: str
    rule: str
    reason: str
    """Why the request was not judged: it is malformed, or there was no decision."""


class Entry(NamedTuple):
    """The content of a line, as the check left it: nothing is cut or escaped yet.

    A check makes an entry, which costs it little; the writing thread makes the line. The entry keeps no message, whose
    body would take memory until then.
    """

    time: float
    seconds: float
    backend: str
    decision: Conclusion
    status: int | None
    path: str
    host: str
    method: str
    id: str
    source: str
    identity: str
    rule: str
    reason: str
    grounds: Grounds | None = None
    """What policies decided by."""
    shadows: tuple[Shadowed, ...] = ()


def conclusion_of(decision: Decision) -> Conclusion:
    """Tell how a check ended that has a decision."""
    match decision:
        case Allow():
            return _ALLOW
        case Deny():
            return _DENY
        case Unavailable():
            return _UNAVAILABLE
        case _:
            assert_never(decision)


def build_entry(made: Answer, *, backend: str, now: float, seconds: float) -> Entry:
    """Keep what the log says of a decision that took so many seconds."""
    decision, request, verdict = made.decision, made.request, made.verdict
    identity = rule = reason = ""
    status: int | None
    match decision:
        case Allow():
            conclusion, status, identity = _ALLOW, None, decision.identity
        case Deny():
            conclusion, status = _DENY, decision.http_status
            identity, rule, reason = decision.identity, decision.rule, decision.reason
        case Unavailable():
            conclusion, status, reason = _UNAVAILABLE, _NO_DECISION, decision.cause
        case _:
            assert_never(decision)
    match request:
        case Request():
            path, host, method = request.path, request.host, request.method
            ident, source = decision_id(request), request.source_address
        case Malformed():
            path = host = method = ident = source = ""
            reason = request.reason
        case _:
            assert_never(request)
    grounds, shadows = (None, ()) if verdict is None else (verdict.grounds, verdict.shadows)
    # What `Entry(...)` does, in half the time.
    return _new_tuple(
        Entry,
        (
            *(now, seconds, backend, conclusion, status),
            *(path, host, method, ident, source, identity, rule, reason, grounds, shadows),
        ),
    )


def build_undecided(  # noqa: PLR0913 (every field of a line that is known)
    conclusion: Conclusion,
    reason: str,
    *,
    backend: str,
    now: float,
    seconds: float,
    request: Request | Malformed | None = None,
) -> Entry:
    """Keep what is known of a check without an answer; ``reason`` must not repeat what a client sent."""
    path = host = method = ident = source = unknown = ""
    if isinstance(request, Request):
        path, host, method = request.path, request.host, request.method
        ident, source = decision_id(request), request.source_address
    return Entry(
        now, seconds, backend, conclusion, _NO_DECISION,
        path, host, method, ident, source, unknown, unknown, reason,
    )  # fmt: skip


def build_record(entry: Entry) -> Record:
    """Make an entry fit to be shown; grounds say which rule decided, why, and who asked, as the policies saw it."""
    path = _without_parameters(entry.path)
    texts = _shown((
        _without_user(entry.host), entry.method, entry.id, entry.source, entry.identity, entry.rule, entry.reason,
    ))  # fmt: skip
    record = Record(entry.time, entry.seconds, entry.backend, entry.decision, entry.status, path, *texts)
    grounds = entry.grounds
    if grounds is None:
        return record
    identity = shown(grounds.identity) or record.identity
    return record._replace(rule=shown(grounds.rule), reason=shown(grounds.reason), identity=identity)


def line_of(record: Record) -> str:
    """Write a record as one line of JSON, in ASCII, with its end."""
    time, seconds, backend, decision, status, path, host, method, ident, source, identity, rule, reason = record
    # By hand, since a general encoder takes twice as long; the texts are quoted by the encoder's own function.
    return (
        f'{{"time":"{time_text(time)}","decision":"{decision}","status":{"null" if status is None else status},'
        f'"ms":{seconds * 1000:.3f},"backend":{quoted(backend)},"rule":{quoted(rule)},"reason":{quoted(reason)},'
        f'"identity":{quoted(identity)},"source":{quoted(source)},"id":{quoted(ident)},'
        f'"method":{quoted(method)},"host":{quoted(host)},"path":{quoted(path)}}}\n'
    )


def shown(text: str) -> str:
    """Cut and escape a text as all texts of a line are."""
    return _cut(text, _LONGEST)


def time_text(time: float) -> str:
    """Write a time as RFC 3339 does, in UTC with milliseconds."""
    return _moment(int(time * 1000))


_new_tuple: Final = tuple.__new__
_NO_DECISION: Final = 503
_CUT: Final = "…"
_LONGEST: Final = 256
_LONGEST_PATH: Final = 512
_SPECIAL: Final = re.compile(r"[;?#%]")
_PARAMETERS: Final = re.compile(r"[;?#]|%(?:3[bf]|23)", re.IGNORECASE)
"""Where the query, a fragment or parameters begin, plain or for an origin that decodes too much."""
_Texts: TypeAlias = tuple[str, str, str, str, str, str, str]


def _without_user(host: str) -> str:
    return host.rpartition("@")[2] if "@" in host else host


def has_plain_path(path: str) -> bool:
    """Tell quickly whether a path certainly has no parameters; few others have such a character."""
    return _SPECIAL.search(path) is None


def _without_parameters(path: str) -> str:
    """Show a path up to its parameters, which can contain session IDs."""
    # The first expression only saves time: it is much the faster one, and seldom finds anything.
    found = _PARAMETERS.search(path) if _SPECIAL.search(path) else None
    return _cut(path, _LONGEST_PATH) if found is None else f"{_cut(path[: found.start()], _LONGEST_PATH)}{_CUT}"


def _shown(texts: _Texts) -> _Texts:
    """Cut and escape each text; that none needs it is found in one look."""
    together = "".join(texts)
    if len(together) <= _LONGEST and together.isprintable():
        return texts
    host, method, ident, source, identity, rule, reason = (_cut(text, _LONGEST) for text in texts)
    return host, method, ident, source, identity, rule, reason


def _cut(text: str, longest: int) -> str:
    """Escape what could garble a terminal, surrogates for odd bytes among it, and keep the beginning."""
    if len(text) <= longest and text.isprintable():
        return text
    return shorten(printable(text[: longest + 1]), longest)


@lru_cache(maxsize=4)
def _moment(milliseconds: int) -> str:
    """Write a time; decisions share one when there are many. No more than four are kept."""
    whole, rest = divmod(milliseconds, 1000)
    return f"{_second(whole)}.{rest:03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    """Write a time without its milliseconds; this takes as long as the rest of a line: 2.8 µs."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
