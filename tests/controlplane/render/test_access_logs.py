"""Each request has one line in the access log, and that of a denial says more."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.extensions.access_loggers.stream.v3 import stream_pb2

from authplane.controlplane.render.listeners.access_logs import NativeFields, access_logs
from authplane.policy.mcp.mcp_answers import DenialFormat

NATIVE = NativeFields(slots=0, messages=True, tokens=True, certificates=True, denial_format=DenialFormat.HTTP403)
DETAILS = {"mcp_method", "mcp_name", "issuer", "subject", "spiffe_id"}


def passes(each: accesslog_pb2.AccessLogFilter, status: int) -> bool:
    """Judge a filter as Envoy does."""
    match each.WhichOneof("filter_specifier"):
        case None:
            return True
        case "and_filter":
            return all(passes(one, status) for one in each.and_filter.filters)
        case "or_filter":
            return any(passes(one, status) for one in each.or_filter.filters)
        case _:
            comparison = each.status_code_filter.comparison
            wanted = comparison.value.default_value
            return status >= wanted if comparison.op == comparison.Op.GE else status <= wanted


def fields(log: accesslog_pb2.AccessLog) -> set[str]:
    written = stream_pb2.StdoutAccessLog()
    assert log.typed_config.Unpack(written)
    return set(written.log_format.json_format.fields)


def lines(logs: Iterable[accesslog_pb2.AccessLog], status: int) -> list[set[str]]:
    return [fields(each) for each in logs if passes(each.filter, status)]


@pytest.mark.parametrize("status", [0, 101, 200, 400, 401, 403, 404, 503, 599])
def test_each_request_has_one_line_and_only_denials_have_all_fields(status: int) -> None:
    [line] = lines(access_logs(NATIVE), status)
    assert line >= {"status", "details", "request_id", "policies", "decided"}
    assert line & DETAILS == (DETAILS if status in {401, 403} else set())
    [plain] = lines(access_logs(None), status)
    assert not plain & (DETAILS | {"policies", "decided"})


def test_denials_with_the_status_200_have_all_fields() -> None:
    [line] = lines(access_logs(replace(NATIVE, denial_format=DenialFormat.JSONRPC200)), 200)
    assert line >= DETAILS


def test_only_values_that_envoy_knows_are_fields() -> None:
    only = replace(NATIVE, tokens=False, certificates=False)
    [line] = lines(access_logs(only), 403)
    assert line & DETAILS == {"mcp_method", "mcp_name"}
    [none] = access_logs(replace(only, messages=False))
    assert not fields(none) & DETAILS
