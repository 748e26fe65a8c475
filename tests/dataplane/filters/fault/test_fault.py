import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import pytest
from envoy.extensions.filters.http.fault.v3 import fault_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.driven_calls import CLIENT_CALL, Watched, call, drive, packed

from authplane.dataplane.filters.calls import Call, Code, Effect, Proceed, Side, Stop, Verdict, Wait
from authplane.dataplane.filters.fault.filter import (
    ActiveFaults,
    Fault,
    FixedAbort,
    FixedDelay,
    HeaderAbort,
    HeaderDelay,
    Share,
)
from authplane.dataplane.filters.fault.wire import FAULT, parse_fault
from authplane.dataplane.filters.registry import Packed, Registry, Scope, Trust
from authplane.matching.fractions import ALWAYS, Fraction
from authplane.matching.header_matchers import HeaderPresent

SCOPE: Final = Scope(side=Side.CLIENT, trust=Trust(), registry=Registry.of())
ALL: Final = Share(ALWAYS)
HALF: Final = Share(Fraction(500_000))
HUNDRED: Final = {"numerator": 100}


def parse(**fields: Any) -> object:
    found = parse_fault(packed(pb.HTTPFault(**fields)), SCOPE)
    return found if isinstance(found, Fault) else [str(problem) for problem in found]


def run(fault: Fault, made: Call = CLIENT_CALL, draws: Iterable[float] = (0.0, 0.0)) -> tuple[Verdict, list[Effect]]:
    return drive(fault.build(Watched(draws=iter(draws)).state, None).run(made), lambda _: None)


def stop(code: Code) -> Stop:
    return Stop(code=code, message="fault injected by the fault filter")


PASSED: Final = Proceed(metadata=CLIENT_CALL.metadata)


# --- Configuration


class Read(NamedTuple):
    fields: dict[str, Any]
    want: object


READ: Final = {
    "nothing": Read({}, Fault()),
    "a delay": Read(
        {"delay": {"fixed_delay": {"seconds": 1, "nanos": 500_000_000}, "percentage": HUNDRED}},
        Fault(delay=FixedDelay(1.5, ALL)),
    ),
    "a delay by headers": Read(
        {"delay": {"header_delay": {}, "percentage": {"numerator": 5000, "denominator": 1}}},
        Fault(delay=HeaderDelay(Share(Fraction(500_000), 10_000))),
    ),
    "an abort": Read(
        {"abort": {"grpc_status": 14, "percentage": HUNDRED}}, Fault(abort=FixedAbort(Code.UNAVAILABLE, ALL))
    ),
    "an abort as HTTP has it": Read(
        {"abort": {"http_status": 404, "percentage": {"numerator": 50}}},
        Fault(abort=FixedAbort(Code.UNIMPLEMENTED, HALF)),
    ),
    "200 is UNKNOWN": Read(
        {"abort": {"http_status": 200, "percentage": HUNDRED}}, Fault(abort=FixedAbort(Code.UNKNOWN, ALL))
    ),
    "OK is UNKNOWN": Read(
        {"abort": {"grpc_status": 0, "percentage": HUNDRED}}, Fault(abort=FixedAbort(Code.UNKNOWN, ALL))
    ),
    "an abort by headers": Read(
        {"abort": {"header_abort": {}, "percentage": {"numerator": 200}}}, Fault(abort=HeaderAbort(ALL))
    ),
    "no percentage is never": Read(
        {"abort": {"grpc_status": 14}}, Fault(abort=FixedAbort(Code.UNAVAILABLE, Share(Fraction(0))))
    ),
    "a limit": Read({"max_active_faults": {"value": 0}}, Fault(most_active=0)),
    "headers": Read(
        {"headers": [{"name": "X", "present_match": True}]}, Fault(headers=(HeaderPresent(name="x", present=True),))
    ),
    "what is ignored": Read(
        {"upstream_cluster": "a", "downstream_nodes": ["b"], "delay_percent_runtime": "c", "response_rate_limit": {}},
        Fault(),
    ),
    "problems, all of them": Read(
        {
            "delay": {"fixed_delay": {"seconds": -1}, "percentage": {"denominator": 7}},
            "abort": {"grpc_status": 17, "percentage": HUNDRED},
            "headers": [{"name": "x"}],
        },
        [
            "delay.percentage.denominator: 7 is not a denominator. Supported: HUNDRED, TEN_THOUSAND, MILLION."
            " [DenominatorUnknown]",
            "delay.fixed_delay: -1 s and 0 ns is not a duration. Use a duration of 0 or more. [DurationInvalid]",
            "abort.grpc_status: 17 is not a gRPC status code. Use a number from 0 to 16. [StatusInvalid]",
            "headers[0]: The header has no matcher. Set one, such as string_match. [MatcherMissing]",
        ],
    ),
    "nothing said": Read(
        {"delay": {}, "abort": {}},
        [
            "delay: The delay is missing. Set fixed_delay or header_delay. [DelayMissing]",
            "abort: The status is missing. Set http_status, grpc_status or header_abort. [AbortMissing]",
        ],
    ),
    "no status": Read(
        {"abort": {"http_status": 99}},
        ["abort.http_status: 99 is not an HTTP status. Use a number from 200 to 599. [StatusInvalid]"],
    ),
}


@pytest.mark.parametrize("case", READ.values(), ids=READ.keys())
def test_configurations(case: Read) -> None:
    assert parse(**case.fields) == case.want


def test_only_clients_have_faults_and_they_can_be_overridden() -> None:
    assert FAULT.sides == {Side.CLIENT}
    override = Fault(abort=FixedAbort(Code.ABORTED, ALL))
    state = Watched(draws=iter((0.0,))).state
    assert drive(Fault().build(state, override).run(CLIENT_CALL), lambda _: None)[0] == stop(Code.ABORTED)


# --- Faults


def test_a_delay_comes_before_an_abort() -> None:
    both = Fault(delay=FixedDelay(2.0, ALL), abort=FixedAbort(Code.ABORTED, ALL))
    assert run(both) == (stop(Code.ABORTED), [Wait(2.0)])
    assert run(Fault(delay=FixedDelay(2.0, ALL))) == (PASSED, [Wait(2.0)])
    assert run(Fault(delay=FixedDelay(0.0, ALL))) == (PASSED, [])


@pytest.mark.requirement("HF-21")
@pytest.mark.parametrize(
    ("draws", "delayed", "aborted"),
    [((0.4, 0.4), True, True), ((0.4, 0.6), True, False), ((0.6, 0.4), False, True), ((0.6, 0.6), False, False)],
)
def test_each_fault_is_drawn_for_itself(draws: tuple[float, float], delayed: bool, aborted: bool) -> None:
    verdict, effects = run(Fault(delay=FixedDelay(1.0, HALF), abort=FixedAbort(Code.ABORTED, HALF)), draws=draws)
    assert (bool(effects), isinstance(verdict, Stop)) == (delayed, aborted)


class Asked(NamedTuple):
    headers: dict[str, str]
    verdict: Verdict | None
    effects: list[Effect]


DELAY: Final = "x-envoy-fault-delay-request"
ABORT: Final = "x-envoy-fault-abort-request"
ABORT_CODE: Final = "x-envoy-fault-abort-grpc-request"
ASKED: Final = {
    "nothing": Asked({}, None, []),
    "a delay": Asked({DELAY: "53"}, None, [Wait(0.053)]),
    "an abort": Asked({ABORT_CODE: "3"}, stop(Code.INVALID_ARGUMENT), []),
    "an abort as HTTP has it": Asked({ABORT: "503"}, stop(Code.UNAVAILABLE), []),
    "the code counts first": Asked({ABORT_CODE: "3", ABORT: "503"}, stop(Code.INVALID_ARGUMENT), []),
    "OK is UNKNOWN": Asked({ABORT_CODE: "0"}, stop(Code.UNKNOWN), []),
    "what is no code is ignored": Asked({ABORT_CODE: "17", ABORT: "99", DELAY: "-1"}, None, []),
    "what is no number is ignored": Asked({ABORT_CODE: "x", ABORT: "", DELAY: "1.5"}, None, []),
    "percentages": Asked(
        {DELAY: "1", f"{DELAY}-percentage": "30", ABORT_CODE: "3", f"{ABORT}-percentage": "50"},
        stop(Code.INVALID_ARGUMENT),
        [],
    ),
    "percentages make it no more": Asked({DELAY: "1", f"{DELAY}-percentage": "100"}, None, [Wait(0.001)]),
    "a percentage that is none is ignored": Asked({DELAY: "1", f"{DELAY}-percentage": "x"}, None, [Wait(0.001)]),
}


@pytest.mark.parametrize("case", ASKED.values(), ids=ASKED.keys())
def test_headers_ask_for_faults(case: Asked) -> None:
    share = Share(Fraction(450_000))
    made = call(*case.headers.items(), side=Side.CLIENT)
    verdict, effects = run(Fault(delay=HeaderDelay(share), abort=HeaderAbort(share)), made, draws=(0.4, 0.4))
    assert (verdict, effects) == (case.verdict or Proceed(metadata=made.metadata), case.effects)
    verdict, effects = run(Fault(delay=HeaderDelay(share), abort=HeaderAbort(share)), made, draws=(0.46, 0.46))
    assert (verdict, effects) == (Proceed(metadata=made.metadata), [])


def test_only_calls_with_the_headers_are_affected() -> None:
    fault = Fault(abort=FixedAbort(Code.ABORTED, ALL), headers=(HeaderPresent(name="x-test", present=True),))
    assert run(fault)[0] == PASSED
    assert run(fault, call(("x-test", "1")))[0] == stop(Code.ABORTED)


def test_no_more_calls_are_affected_at_one_time_than_the_limit() -> None:
    watched = Watched(draws=iter([0.0] * 20))
    fault = Fault(delay=FixedDelay(1.0, ALL), abort=FixedAbort(Code.ABORTED, ALL), most_active=1)
    running = fault.build(watched.state, None)
    first = running.run(CLIENT_CALL)
    assert next(first) == Wait(1.0)
    assert drive(running.run(CLIENT_CALL), lambda _: None) == (PASSED, [])
    again = fault.build(watched.state, None)
    assert drive(again.run(CLIENT_CALL), lambda _: None) == (PASSED, []), "an update does not forget the first one"
    with pytest.raises(StopIteration) as finished:
        first.send(None)
    assert finished.value.value == stop(Code.ABORTED)
    second = running.run(CLIENT_CALL)
    assert next(second) == Wait(1.0)
    second.close()
    assert drive(running.run(CLIENT_CALL), lambda _: None) == (stop(Code.ABORTED), [Wait(1.0)])


def test_threads_never_pass_the_limit_together() -> None:
    active = ActiveFaults()
    most_seen: list[int] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    inside: set[object] = set()

    def work(_: int) -> None:
        for _ in range(2000):
            end = active.begin(2)
            if end is not None:
                mark = object()
                inside.add(mark)
                most_seen.append(len(inside))
                inside.discard(mark)
                end()

    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
    finally:
        sys.setswitchinterval(before)
    assert max(most_seen) <= 2
    assert len(active) == 0


def test_a_limit_of_zero_injects_nothing() -> None:
    fault = Fault(delay=FixedDelay(1.0, ALL), abort=FixedAbort(Code.ABORTED, ALL), most_active=0)
    assert run(fault) == (PASSED, [])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_raise(data: bytes) -> None:
    found = parse_fault(Packed("x", data), SCOPE)
    assert isinstance(found, Fault) or found


def test_bytes_that_are_no_message_are_named_as_such() -> None:
    found = parse_fault(Packed(type_name="envoy.extensions.filters.http.fault.v3.HTTPFault", value=b"\xff"), SCOPE)
    assert isinstance(found, tuple)
    assert [each.reason for each in found] == ["Unreadable"]
