from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from envoy.service.auth.v3 import external_auth_pb2 as pb
from tests.support.dataplane.driven_calls import CALL, CLIENT_CALL, Watched, call, drive, no_effects, regex
from tests.support.dataplane.ext_authz_messages import CHANNEL, SERVICE, allowed, denied, header

from authplane.dataplane.filters.calls import (
    Answered,
    Ask,
    Call,
    Code,
    Effect,
    Outcome,
    Proceed,
    Stop,
    Unanswered,
    Verdict,
)
from authplane.dataplane.filters.extauthz.authorize_call import (
    FAIL_CLOSED,
    FAILURE_MARK,
    ExtAuthz,
    FailOpen,
    FailurePolicy,
)
from authplane.dataplane.filters.extauthz.check_messages.wire import Questions
from authplane.dataplane.filters.extauthz.wire import ExtAuthzOverride
from authplane.dataplane.filters.headers import Rules
from authplane.matching.fractions import Fraction

CONFIG: Final = ExtAuthz(service=SERVICE)
NO_DECISION: Final = "the authorization service made no decision"


def answer(message: pb.CheckResponse) -> Callable[[Effect], Outcome]:
    return lambda _: Answered(message.SerializeToString())


def fail(code: Code = Code.UNAVAILABLE) -> Callable[[Effect], Outcome]:
    return lambda _: Unanswered(code, "10.0.0.7 refused")


def run(
    config: ExtAuthz,
    made: Call,
    answers: Callable[[Effect], Outcome],
    watched: Watched | None = None,
    override: object = None,
) -> tuple[Verdict, list[Effect]]:
    return drive(config.build((watched or Watched()).state, override).run(made), answers)


def counted(watched: Watched) -> list[str]:
    return [metric for metric, _ in watched.counted]


@pytest.mark.requirement("EA-20")
def test_a_call_sends_one_check_over_the_side_channel() -> None:
    verdict, effects = run(CONFIG, CALL, answer(allowed()))
    assert verdict == Proceed(metadata=CALL.metadata)
    (ask,) = effects
    assert isinstance(ask, Ask)
    assert replace(ask, request=b"") == Ask(
        channel=CHANNEL, method="/envoy.service.auth.v3.Authorization/Check", request=b"", timeout=None
    )
    assert pb.CheckRequest.FromString(ask.request).attributes.request.http.path == "/shop.Cart/Add"


def test_an_override_changes_nothing() -> None:
    verdict, effects = run(CONFIG, CALL, answer(denied(401)), override=ExtAuthzOverride())
    assert isinstance(verdict, Stop)
    assert len(effects) == 1


@pytest.mark.requirement("EA-33")
def test_an_allow_changes_the_call_and_its_response() -> None:
    message = allowed(headers=[header("x-user", "ann")], remove=["x-secret"], response=[header("r", "1")])
    made = call(("x-user", "spoofed"), ("x-user", "again"), ("x-secret", "s"), ("a", "1"))
    verdict, _ = run(CONFIG, made, answer(message))
    assert verdict == Proceed(metadata=(("a", "1"), ("x-user", "ann")), response_metadata=(("r", "1"),))


def test_a_denial_ends_the_call_with_its_headers_as_trailers() -> None:
    verdict, _ = run(CONFIG, CALL, answer(denied(401, header("x-why", "token"), message="expired")))
    assert verdict == Stop(
        code=Code.UNAUTHENTICATED,
        message="denied by the authorization service: expired",
        trailers=(("x-why", "token"),),
    )


# --- Without a decision


class Failure(NamedTuple):
    answers: Callable[[Effect], Outcome]


INVALID: Final = allowed(headers=[header("x-user", "ann"), header("x y")])
FAILURES: Final = {
    "no connection": Failure(fail()),
    "its own deadline": Failure(fail(Code.DEADLINE_EXCEEDED)),
    "any other code": Failure(fail(Code.PERMISSION_DENIED)),
    "no answer at all": Failure(lambda _: None),
    "rubbish": Failure(lambda _: Answered(b"\xff")),
    "an invalid mutation": Failure(answer(INVALID)),
    "a denial with an invalid header": Failure(answer(denied(401, header("x y")))),
    "a denial without a status": Failure(answer(pb.CheckResponse(denied_response=pb.DeniedHttpResponse()))),
    "an error response": Failure(answer(pb.CheckResponse(error_response=pb.DeniedHttpResponse()))),
}


@pytest.mark.requirement("EA-5", "EA-3", "EA-37", "HM-9")
@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_check_denies_or_passes_as_configured_and_changes_nothing_else(case: Failure) -> None:
    made = call(("a", "1"))
    watched = Watched()
    assert run(CONFIG, made, case.answers, watched)[0] == Stop(code=Code.PERMISSION_DENIED, message=NO_DECISION)
    mapped = replace(CONFIG, error_code=Code.UNAVAILABLE)
    assert run(mapped, made, case.answers, watched)[0] == Stop(code=Code.UNAVAILABLE, message=NO_DECISION)
    opened = replace(CONFIG, on_failure=FailOpen())
    assert run(opened, made, case.answers, watched)[0] == Proceed(metadata=made.metadata)
    marked = replace(CONFIG, on_failure=FailOpen(mark_request=True))
    want = Proceed(metadata=(("a", "1"), (FAILURE_MARK, "true")))
    assert run(marked, made, case.answers, watched)[0] == want
    assert counted(watched) == ["grpc.server_ext_authz.failed_rpcs"] * 4
    assert len(watched.told) == 4


def test_the_client_does_not_learn_why_there_is_no_decision_and_the_log_does() -> None:
    watched = Watched()
    verdict, _ = run(CONFIG, CALL, fail(), watched)
    assert isinstance(verdict, Stop)
    assert "10.0.0.7" not in verdict.message
    assert watched.told == ["no decision for /shop.Cart/Add: UNAVAILABLE: 10.0.0.7 refused"]


@pytest.mark.requirement("E18")
@pytest.mark.parametrize("mark_request", [False, True])
@pytest.mark.parametrize("answers", [answer(allowed()), fail()], ids=["allowed", "failed"])
def test_a_client_cannot_pretend_that_there_was_no_decision(
    mark_request: bool, answers: Callable[[Effect], Outcome]
) -> None:
    made = call((FAILURE_MARK, "true"), (FAILURE_MARK, "false"))
    verdict, effects = run(replace(CONFIG, on_failure=FailOpen(mark_request)), made, answers)
    failed = answers(effects[0]) == fail()(effects[0])
    assert verdict == Proceed(metadata=((FAILURE_MARK, "true"),) if failed and mark_request else ())


@pytest.mark.requirement("E18", "EA-4")
def test_failing_open_is_off_by_default() -> None:
    assert isinstance(run(CONFIG, CALL, fail())[0], Stop)


@pytest.mark.requirement("E18")
def test_a_client_cannot_choose_a_deadline_that_leaves_no_time_for_a_decision() -> None:
    opened = replace(CONFIG, on_failure=FailOpen(), service=replace(SERVICE, timeout=1.0))
    late = Stop(code=Code.DEADLINE_EXCEEDED, message="the deadline passed before the authorization decision")
    hurried = replace(CALL, remaining=0.001)
    assert run(opened, hurried, fail(Code.DEADLINE_EXCEEDED))[0] == late
    patient = replace(CALL, remaining=30.0)
    assert run(opened, patient, fail(Code.DEADLINE_EXCEEDED))[0] == Proceed(metadata=CALL.metadata)
    assert run(opened, hurried, fail(Code.UNAVAILABLE))[0] == Proceed(metadata=CALL.metadata)


@pytest.mark.requirement("E18", "E23")
def test_a_client_cannot_send_so_much_that_there_is_no_decision() -> None:
    opened = replace(CONFIG, on_failure=FailOpen())
    large = call(*((f"x-{index}", "a" * 8000) for index in range(70)))
    watched = Watched()
    verdict = no_effects(opened.build(watched.state, None).run(large))
    want = Stop(code=Code.RESOURCE_EXHAUSTED, message="the request metadata is too large for an authorization check")
    assert verdict == want
    assert counted(watched) == ["grpc.server_ext_authz.failed_rpcs"]


@pytest.mark.requirement("HM-6")
def test_a_rule_that_is_broken_fails_the_check() -> None:
    config = replace(CONFIG, rules=Rules(disallow=regex("x-no"), disallow_is_error=True))
    message = allowed(headers=[header("x-user", "ann"), header("x-no")])
    assert run(config, CALL, answer(message))[0] == Stop(code=Code.PERMISSION_DENIED, message=NO_DECISION)
    opened = replace(config, on_failure=FailOpen())
    assert run(opened, CALL, answer(message))[0] == Proceed(metadata=CALL.metadata)


# --- Enabled or not


class Drawn(NamedTuple):
    fraction: Fraction
    draws: Iterable[float]
    checked: list[bool]


DRAWS: Final = {
    "half": Drawn(Fraction(500_000), (0.0, 0.499999, 0.5, 0.9), [True, True, False, False]),
    "nothing": Drawn(Fraction(0), (0.0, 0.5), [False, False]),
    "all": Drawn(Fraction(1_000_000), (0.0, 0.999999999), [True, True]),
}


@pytest.mark.requirement("EA-1", "EA-2", "HF-21")
@pytest.mark.parametrize("case", DRAWS.values(), ids=DRAWS.keys())
def test_each_call_draws_whether_it_is_checked(case: Drawn) -> None:
    config = replace(CONFIG, enabled=case.fraction)
    watched = Watched(draws=iter(case.draws))
    running = config.build(watched.state, None)
    found = [bool(drive(running.run(CALL), answer(allowed()))[1]) for _ in case.checked]
    assert found == case.checked
    assert next(watched.draws, None) is None


@pytest.mark.requirement("EA-1")
def test_without_a_fraction_every_call_is_checked_and_nothing_is_drawn() -> None:
    assert len(run(CONFIG, CALL, answer(allowed()))[1]) == 1


@pytest.mark.requirement("EA-2", "EA-37", "E35")
def test_a_call_that_is_not_checked_passes_unchanged_or_is_refused() -> None:
    watched = Watched(draws=iter((0.0, 0.0)))
    made = call((FAILURE_MARK, "kept"))
    config = replace(CONFIG, enabled=Fraction(0), on_failure=FailOpen())
    assert no_effects(config.build(watched.state, None).run(made)) == Proceed(metadata=made.metadata)
    refusing = replace(config, deny_at_disable=True, error_code=Code.UNAVAILABLE)
    assert no_effects(refusing.build(watched.state, None).run(made)) == Stop(
        code=Code.UNAVAILABLE, message="authorization is disabled for this call, and deny_at_disable is set"
    )
    assert counted(watched) == ["grpc.server_ext_authz.filter_disabled_rpcs"] * 2


# --- What goes with the check


class Limits(NamedTuple):
    own: float | None
    remaining: float | None
    want: float | None


TIMEOUTS: Final = {
    "neither": Limits(None, None, None),
    "the filter's": Limits(1.0, None, 1.0),
    "the call's": Limits(None, 2.0, 2.0),
    "the shorter one of both": Limits(1.0, 2.0, 1.0),
    "the call's if it is shorter": Limits(3.0, 2.0, 2.0),
}


@pytest.mark.requirement("GS-8")
@pytest.mark.parametrize("case", TIMEOUTS.values(), ids=TIMEOUTS.keys())
def test_the_time_for_a_check(case: Limits) -> None:
    config = replace(CONFIG, service=replace(SERVICE, timeout=case.own))
    _, (ask,) = run(config, replace(CALL, remaining=case.remaining), answer(allowed()))
    assert isinstance(ask, Ask)
    assert ask.timeout == case.want


PARENT: Final = ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
STATE: Final = ("tracestate", "a=b")
BINARY: Final = ("grpc-trace-bin", b"\0\1")


@pytest.mark.requirement("EA-26", "GS-9")
def test_the_trace_of_the_call_and_the_metadata_of_the_configuration_go_with_the_check() -> None:
    config = replace(CONFIG, service=replace(SERVICE, metadata=(("x-tenant", "a"), ("tracestate", "ours"))))
    made = call(("a", "1"), PARENT, STATE, BINARY)
    _, (ask,) = run(config, made, answer(allowed()))
    assert isinstance(ask, Ask)
    assert ask.metadata == (("x-tenant", "a"), ("tracestate", "ours"), PARENT, BINARY)
    _, (ask,) = run(CONFIG, made, answer(allowed()))
    assert isinstance(ask, Ask)
    assert ask.metadata == (PARENT, STATE, BINARY)
    _, (ask,) = run(CONFIG, call(PARENT, PARENT, STATE), answer(allowed()))
    assert isinstance(ask, Ask)
    assert ask.metadata == ()


# --- Metrics


@pytest.mark.requirement("EA-37")
@pytest.mark.parametrize(
    ("answers", "outcome"),
    [(answer(allowed()), "allowed"), (answer(denied(403)), "denied"), (fail(), "failed"), (answer(INVALID), "failed")],
)
def test_each_call_is_counted_once_per_side(answers: Callable[[Effect], Outcome], outcome: str) -> None:
    watched = Watched()
    run(CONFIG, CALL, answers, watched)
    run(CONFIG, CLIENT_CALL, answers, watched)
    assert watched.counted == [
        (f"grpc.server_ext_authz.{outcome}_rpcs", ""),
        (f"grpc.client_ext_authz.{outcome}_rpcs", "xds:///shop"),
    ]


def sized(size: int) -> Call:
    """Return a call whose check has so many bytes."""
    pad = size
    while True:
        made = call(("x-a", "a" * pad))
        excess = len(Questions(CONFIG.shown).check(made)) - size
        if not excess:
            return made
        pad -= excess


@pytest.mark.parametrize("on_failure", [FAIL_CLOSED, FailOpen()], ids=["closed", "open"])
def test_a_check_has_at_most_512_kib_and_a_larger_one_stops_the_call_whatever_failures_do(
    on_failure: FailurePolicy,
) -> None:
    config = replace(CONFIG, on_failure=on_failure)
    most = sized(524_288)
    assert run(config, most, answer(allowed()))[0] == Proceed(metadata=most.metadata)
    verdict, effects = run(config, sized(524_289), answer(allowed()))
    assert effects == []
    assert verdict == Stop(
        code=Code.RESOURCE_EXHAUSTED, message="the request metadata is too large for an authorization check"
    )
