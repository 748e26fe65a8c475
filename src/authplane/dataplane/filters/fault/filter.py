"""The fault filter: its configuration, and how it decides a call."""

import re
from collections.abc import Callable
from typing import Final, TypeAlias, assert_never

from authplane.core.values import dataclass
from authplane.dataplane.filters.call_headers import lookup_in
from authplane.dataplane.filters.calls import Call, Code, Flow, Proceed, Running, Stop, Wait
from authplane.dataplane.filters.grpc_status import code_of_http
from authplane.dataplane.filters.registry import State
from authplane.matching.fractions import Fraction, capped, is_drawn
from authplane.matching.header_matchers import HeaderMatcher, Lookup, matches_header

DELAY: Final = "x-envoy-fault-delay-request"
DELAY_PERCENTAGE: Final = "x-envoy-fault-delay-request-percentage"
ABORT: Final = "x-envoy-fault-abort-request"
ABORT_CODE: Final = "x-envoy-fault-abort-grpc-request"
ABORT_PERCENTAGE: Final = "x-envoy-fault-abort-request-percentage"

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_INJECTED: Final = "fault injected by the fault filter"


@dataclass(frozen=True, slots=True)
class Share:
    """Which calls are affected; a header can only make it fewer."""

    fraction: Fraction
    denominator: int = 100
    """What the number in a header is a part of."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """Calls wait so many seconds."""

    seconds: float
    share: Share


@dataclass(frozen=True, slots=True)
class HeaderDelay:
    """Calls wait as long as their own header says."""

    share: Share


@dataclass(frozen=True, slots=True)
class FixedAbort:
    """Calls end with this code, which is never OK."""

    code: Code
    share: Share


@dataclass(frozen=True, slots=True)
class HeaderAbort:
    """Calls end as their own header says."""

    share: Share


Delay: TypeAlias = FixedDelay | HeaderDelay
Abort: TypeAlias = FixedAbort | HeaderAbort


class ActiveFaults:
    """Counts the calls that are affected right now. Safe to use from several threads."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: set[object] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, most: int | None) -> Callable[[], None] | None:
        """Count one more and return what ends it; None if there would be more than ``most``."""
        token = object()
        # First in, then look: two at once may both step back, and never both go on.
        self._calls.add(token)
        if most is not None and len(self._calls) > most:
            self._calls.discard(token)
            return None
        return lambda: self._calls.discard(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Which faults are injected into which calls."""

    delay: Delay | None = None
    abort: Abort | None = None
    headers: tuple[HeaderMatcher, ...] = ()
    """Only calls that match all of them are affected."""
    most_active: int | None = None
    """How many calls may be affected at one time; None sets no limit."""

    def build(self, state: State, override: object | None) -> Running:
        """Create the filter; an override replaces the whole configuration."""
        config = override if isinstance(override, Fault) else self
        return _FaultFilter(config, state, state.kept.of(ActiveFaults, ActiveFaults))


class _FaultFilter:
    """Injects faults into calls."""

    __slots__ = ("_active", "_config", "_state")

    def __init__(self, config: Fault, state: State, active: ActiveFaults) -> None:
        self._config = config
        self._state = state
        self._active = active

    def run(self, call: Call) -> Flow:
        """Delay the call, then abort it, each if it is so drawn."""
        lookup = lookup_in(call)
        if all(matches_header(each, lookup) for each in self._config.headers):
            delay, code = self._drawn_delay(lookup), self._drawn_code(lookup)
            end = self._active.begin(self._config.most_active) if delay else None
            if end is not None:
                try:
                    yield Wait(delay)
                finally:
                    end()
            end = None if code is None else self._active.begin(self._config.most_active)
            if code is not None and end is not None:
                end()
                return Stop(code=code, message=_INJECTED)
        return Proceed(metadata=call.metadata)

    def _drawn_delay(self, lookup: Lookup) -> float:
        match self._config.delay:
            case None:
                return 0.0
            case FixedDelay(seconds, share):
                return seconds if self._is_drawn(share.fraction) else 0.0
            case HeaderDelay(share):
                milliseconds = _number(lookup(DELAY))
                fraction = _narrowed(share, lookup(DELAY_PERCENTAGE))
                return milliseconds / 1000 if milliseconds and self._is_drawn(fraction) else 0.0
            case _:
                assert_never(self._config.delay)

    def _drawn_code(self, lookup: Lookup) -> Code | None:
        match self._config.abort:
            case None:
                return None
            case FixedAbort(code, share):
                return code if self._is_drawn(share.fraction) else None
            case HeaderAbort(share):
                asked = _asked_code(lookup)
                fraction = _narrowed(share, lookup(ABORT_PERCENTAGE))
                return asked if asked is not None and self._is_drawn(fraction) else None
            case _:
                assert_never(self._config.abort)

    def _is_drawn(self, fraction: Fraction) -> bool:
        return is_drawn(fraction, self._state.random())


def abort_code(number: int) -> Code | None:
    """Return the code that an abort with a number has; None if there is no such code.

    A call that is aborted cannot have succeeded: OK becomes UNKNOWN, as it does for HTTP.
    """
    try:
        return Code(number) or Code.UNKNOWN
    except ValueError:
        return None


def _asked_code(lookup: Lookup) -> Code | None:
    number = _number(lookup(ABORT_CODE))
    code = None if number is None else abort_code(number)
    if code is not None:
        return code
    status = _number(lookup(ABORT))
    return code_of_http(status) if status is not None and 200 <= status < 600 else None


def _narrowed(share: Share, said: str | None) -> Fraction:
    number = _number(said)
    if number is None:
        return share.fraction
    return min(share.fraction, capped(number, share.denominator), key=lambda each: each.per_million)


def _number(text: str | None) -> int | None:
    """Read what a header says; what is no number is ignored."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
