"""``HTTPFault`` to our value, and the filter as the registry knows it."""

from typing import Final, assert_never

from envoy.config.route.v3 import route_components_pb2 as route_pb
from envoy.extensions.filters.common.fault.v3 import fault_pb2 as delay_pb
from envoy.extensions.filters.http.fault.v3 import fault_pb2 as pb
from envoy.type.v3 import percent_pb2 as percent_pb
from google.protobuf.message import DecodeError

from authplane.core.problems import Problem, Problems
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.fault.filter import (
    Abort,
    Delay,
    Fault,
    FixedAbort,
    FixedDelay,
    HeaderAbort,
    HeaderDelay,
    Share,
    abort_code,
)
from authplane.dataplane.filters.grpc_status import code_of_http
from authplane.dataplane.filters.registry import FilterType, Packed, Scope
from authplane.dataplane.filters.wire import parse_seconds
from authplane.matching.fractions import NEVER
from authplane.matching.header_matchers import HeaderMatcher
from authplane.matching.wire import parse_fraction, parse_header_matcher

TYPE_NAME: Final = "envoy.extensions.filters.http.fault.v3.HTTPFault"

_DENOMINATORS: Final = {
    percent_pb.FractionalPercent.HUNDRED: 100,
    percent_pb.FractionalPercent.TEN_THOUSAND: 10_000,
    percent_pb.FractionalPercent.MILLION: 1_000_000,
}


def parse_fault(packed: Packed, scope: Scope) -> Fault | tuple[Problem, ...]:
    """Parse the configuration; report every problem."""
    del scope
    problems = Problems()
    try:
        message = pb.HTTPFault.FromString(packed.value)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {TYPE_NAME}.")
        return problems.errors
    config = Fault(
        delay=_parse_delay(message.delay, problems) if message.HasField("delay") else None,
        abort=_parse_abort(message.abort, problems) if message.HasField("abort") else None,
        headers=_parse_headers(list(message.headers), problems),
        most_active=message.max_active_faults.value if message.HasField("max_active_faults") else None,
    )
    return problems.errors or config


FAULT: Final = FilterType(
    type_urls=(TYPE_NAME,),
    override_urls=(TYPE_NAME,),
    sides=frozenset({Side.CLIENT}),
    parse=parse_fault,
    parse_override=parse_fault,
)


def _parse_delay(message: delay_pb.FaultDelay, problems: Problems) -> Delay | None:
    with problems.at("delay"):
        share = _parse_share(message.percentage, problems)
        match message.WhichOneof("fault_delay_secifier"):
            case "fixed_delay":
                with problems.at("fixed_delay"):
                    seconds = parse_seconds(message.fixed_delay, problems)
                return None if seconds is None else FixedDelay(seconds, share)
            case "header_delay":
                return HeaderDelay(share)
            case None:
                problems.add("DelayMissing", "The delay is missing. Set fixed_delay or header_delay.")
                return None
            case other:
                assert_never(other)


def _parse_abort(message: pb.FaultAbort, problems: Problems) -> Abort | None:
    with problems.at("abort"):
        share = _parse_share(message.percentage, problems)
        match message.WhichOneof("error_type"):
            case "http_status":
                return _parse_http_abort(message.http_status, share, problems)
            case "grpc_status":
                return _parse_grpc_abort(message.grpc_status, share, problems)
            case "header_abort":
                return HeaderAbort(share)
            case None:
                problems.add("AbortMissing", "The status is missing. Set http_status, grpc_status or header_abort.")
                return None
            case other:
                assert_never(other)


def _parse_http_abort(status: int, share: Share, problems: Problems) -> Abort | None:
    if 200 <= status < 600:
        return FixedAbort(code_of_http(status), share)
    with problems.at("http_status"):
        problems.add("StatusInvalid", f"{status} is not an HTTP status. Use a number from 200 to 599.")
    return None


def _parse_grpc_abort(number: int, share: Share, problems: Problems) -> Abort | None:
    code = abort_code(number)
    if code is not None:
        return FixedAbort(code, share)
    with problems.at("grpc_status"):
        problems.add("StatusInvalid", f"{number} is not a gRPC status code. Use a number from 0 to 16.")
    return None


def _parse_share(message: percent_pb.FractionalPercent, problems: Problems) -> Share:
    """Read a percentage; none at all is 0 %."""
    with problems.at("percentage"):
        fraction = parse_fraction(message, problems)
    return Share(fraction or NEVER, _DENOMINATORS.get(message.denominator, 100))


def _parse_headers(messages: list[route_pb.HeaderMatcher], problems: Problems) -> tuple[HeaderMatcher, ...]:
    found = []
    for index, message in enumerate(messages):
        with problems.at("headers", index):
            found.append(parse_header_matcher(message, problems))
    return tuple(each for each in found if each is not None)
