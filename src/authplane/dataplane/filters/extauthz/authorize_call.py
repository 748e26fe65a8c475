"""The ext_authz filter (gRFC A92): its configuration, and the authorization of a call."""

from collections.abc import Generator
from dataclasses import replace
from typing import Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import (
    Answered,
    Ask,
    Call,
    Code,
    Effect,
    Flow,
    Metadata,
    Proceed,
    Running,
    Side,
    Stop,
    Unanswered,
    Until,
    Verdict,
)
from authplane.dataplane.filters.calls import Outcome as EffectOutcome
from authplane.dataplane.filters.chain import passed
from authplane.dataplane.filters.extauthz.check_messages.shown_call import Shown
from authplane.dataplane.filters.extauthz.check_messages.wire import METHOD, PLAIN_ALLOW, Questions, read_reply
from authplane.dataplane.filters.extauthz.decision_cache import Caching, DecisionCache, lifetime_of
from authplane.dataplane.filters.extauthz.service_config.service import GrpcService
from authplane.dataplane.filters.extauthz.service_decision import Allow, Deny, Failed, Outcome
from authplane.dataplane.filters.extauthz.trace_context import trace_of
from authplane.dataplane.filters.headers import NO_RULES, Rules, edited, replaced, without
from authplane.dataplane.filters.registry import State
from authplane.matching.fractions import ALWAYS, Fraction, is_drawn

FAILURE_MARK: Final = "x-envoy-auth-failure-mode-allowed"
"""The request header that marks a call without a decision (failure_mode_allow_header_add)."""
MOST_BYTES: Final = 512 * 1024
"""Maximum size of a check. Services reject larger ones, so a client could otherwise force a call without a decision."""

_TOO_LARGE: Final = Stop(
    code=Code.RESOURCE_EXHAUSTED, message="the request metadata is too large for an authorization check"
)
_TOO_LATE: Final = Stop(code=Code.DEADLINE_EXCEEDED, message="the deadline passed before the authorization decision")
_NO_DECISION: Final = "the authorization service made no decision"
_DISABLED: Final = "authorization is disabled for this call, and deny_at_disable is set"


@dataclass(frozen=True, slots=True)
class FailOpen:
    """Allow the call without a decision."""

    mark_request: bool = False
    """Add ``x-envoy-auth-failure-mode-allowed: true`` to the call."""


@dataclass(frozen=True, slots=True)
class FailClosed:
    """Deny the call without a decision."""


FailurePolicy: TypeAlias = FailOpen | FailClosed
FAIL_CLOSED: Final = FailClosed()
SHOWN_BY_DEFAULT: Final = Shown()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtAuthz:
    """The configuration of the filter."""

    service: GrpcService
    enabled: Fraction = ALWAYS
    """The share of calls that are checked, drawn for each call."""
    deny_at_disable: bool = False
    """Whether unchecked calls are denied; otherwise they are allowed."""
    on_failure: FailurePolicy = FAIL_CLOSED
    error_code: Code = Code.PERMISSION_DENIED
    """The status of calls that are denied without a decision."""
    shown: Shown = SHOWN_BY_DEFAULT
    rules: Rules = NO_RULES
    a102_append: bool = False
    """Whether a header change without append_action appends to old values, as in gRFC A102.

    Otherwise it replaces them, so that a client cannot keep a forged header beside that of the service.
    """
    caching: Caching | None = None
    """None sends a check for every call, as in gRFC A92."""

    def build(self, state: State, override: object | None) -> Running:
        """Create the filter; overrides have no effective fields."""
        del override
        caching = self.caching
        if caching is None:
            return _ExtAuthzFilter(self, state, Questions(self.shown), None)
        # What the service is not shown it cannot decide by: so the key has all that counts.
        shown = replace(self.shown, only_headers=frozenset(caching.headers), peer_address=caching.by_address)
        # A changed configuration is another key: what was decided before is forgotten.
        cache = state.kept.of((DecisionCache, self), lambda: DecisionCache(caching))
        return _ExtAuthzFilter(self, state, Questions(shown), cache)


_Judging: TypeAlias = Generator[Effect, EffectOutcome, Outcome]


class _ExtAuthzFilter:
    """Sends a check for each call."""

    __slots__ = ("_cache", "_config", "_questions", "_state")

    def __init__(self, config: ExtAuthz, state: State, questions: Questions, cache: DecisionCache | None) -> None:
        self._config = config
        self._state = state
        self._questions = questions
        self._cache = cache

    def run(self, call: Call) -> Flow:
        """Send a check to the authorization service, and apply its decision."""
        config = self._config
        if config.enabled is not ALWAYS and not is_drawn(config.enabled, self._state.random()):
            self._count(call, "filter_disabled")
            if config.deny_at_disable:
                return Stop(code=config.error_code, message=_DISABLED)
            return passed(call)
        if isinstance(config.on_failure, FailOpen):
            call = _unmarked(call)
        cache = self._cache
        if cache is None:
            outcome = yield from self._ask(call, self._questions.check(call))
        else:
            key = self._questions.key(call)
            found = cache.find(key, self._state.monotonic())
            if found is not None:
                self._count_cache(call, "hits")
                outcome = found
            else:
                outcome = yield from self._learn(call, cache, key)
        return self._verdict(call, outcome)

    def _verdict(self, call: Call, outcome: Outcome) -> Verdict:
        if outcome is PLAIN_ALLOW:
            self._count(call, "allowed")
            return passed(call)
        match outcome:
            case Allow(edits=edits, response_metadata=additions, response_mutations=mutations):
                self._count(call, "allowed")
                metadata = edited(call.metadata, edits)
                return Proceed(metadata=metadata, response_metadata=additions, response_mutations=mutations)
            case Deny(code=code, message=message, trailers=trailers):
                self._count(call, "denied")
                return Stop(code=code, message=message, trailers=trailers)
            case Failed():
                self._count(call, "failed")
                self._state.tell(f"no decision for {call.path}: {outcome.why}")
                return self._without_decision(call, outcome)
            case _:
                assert_never(outcome)

    def _without_decision(self, call: Call, failed: Failed) -> Verdict:
        if failed.stop is not None:
            return failed.stop
        match self._config.on_failure:
            case FailOpen(mark_request):
                return Proceed(
                    metadata=replaced(call.metadata, FAILURE_MARK, "true") if mark_request else call.metadata
                )
            case FailClosed():
                return Stop(code=self._config.error_code, message=_NO_DECISION)
            case _:
                assert_never(self._config.on_failure)

    def _learn(self, call: Call, cache: DecisionCache, key: bytes) -> _Judging:
        """Decide and cache the decision; equal calls at the same time share one check."""
        flight, leads = cache.board(key)
        if not leads:
            yield Until(flight)
            found = cache.find(key, self._state.monotonic())
            if found is not None:
                self._count_cache(call, "shared")
                return found
            # The other check failed, or may not be remembered. To wait for one after the other would take for ever.
        self._count_cache(call, "misses")
        try:
            outcome = yield from self._ask(call, self._questions.check(call))
            if not isinstance(outcome, Failed):
                lifetime = lifetime_of(call.metadata, cache.headers, call.started)
                cache.add(key, outcome, self._state.monotonic(), lifetime)
        finally:
            if leads:
                cache.land(key, flight)
        return outcome

    def _ask(self, call: Call, request: bytes) -> _Judging:
        if len(request) > MOST_BYTES:
            return Failed("the check is too large", _TOO_LARGE)
        service, remaining = self._config.service, call.remaining
        limit = service.timeout
        if limit is None or (remaining is not None and remaining < limit):
            limit = remaining
        answer = yield _ask_of(service, request, limit, trace_of(call.metadata, service.metadata))
        match answer:
            case Answered(reply):
                return read_reply(reply, self._config.rules, a102_append=self._config.a102_append)
            case Unanswered(code=Code.DEADLINE_EXCEEDED) if limit is not None and limit == remaining:
                # A client that gives a call too little time must not pass for it.
                return Failed("the deadline of the call passed", _TOO_LATE)
            case Unanswered(code, message):
                return Failed(f"{code.name}: {message}")
            case None:
                return Failed("the authorization service did not answer")
            case _:
                assert_never(answer)

    def _count(self, call: Call, outcome: str) -> None:
        self._state.count((_SERVER if call.side is _SERVER_SIDE else _CLIENT)[outcome], call.target)

    def _count_cache(self, call: Call, event: str) -> None:
        self._state.count(_CACHE_METRICS[call.side, event], call.target)


_SERVER_SIDE: Final = Side.SERVER
_CLIENT, _SERVER = (
    {
        outcome: f"grpc.{side.value}_ext_authz.{outcome}_rpcs"
        for outcome in ("allowed", "denied", "filter_disabled", "failed")
    }
    for side in (Side.CLIENT, Side.SERVER)
)
_CACHE_METRICS: Final = {
    (side, event): f"authplane.{side.value}_ext_authz.cache_{event}"
    for side in Side
    for event in ("hits", "shared", "misses")
}


def _ask_of(service: GrpcService, request: bytes, timeout: float | None, trace: Metadata) -> Ask:
    """Create an ``Ask`` in half the time of its constructor: every check needs one."""
    ask = _new(Ask)
    _put_channel(ask, service.channel)
    _put_method(ask, METHOD)
    _put_request(ask, request)
    _put_timeout(ask, timeout)
    _put_metadata(ask, (*service.metadata, *trace) if trace else service.metadata)
    return ask


_new: Final = object.__new__
_put_channel, _put_method, _put_request, _put_timeout, _put_metadata = (
    vars(Ask)[name].__set__ for name in ("channel", "method", "request", "timeout", "metadata")
)


def _unmarked(call: Call) -> Call:
    """Remove the failure mark from the metadata of a client; only the filter may set it."""
    metadata = without(call.metadata, FAILURE_MARK)
    return call if metadata is call.metadata else replace(call, metadata=metadata)
