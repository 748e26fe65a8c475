"""The access log: a line of JSON for each request, and who was denied what where Envoy decides natively."""

from collections.abc import Iterator
from typing import Final

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, extension_pb2, substitution_format_string_pb2
from envoy.extensions.access_loggers.stream.v3 import stream_pb2
from envoy.extensions.formatter.cel.v3 import cel_pb2
from google.protobuf.struct_pb2 import Struct, Value

from authplane.cel.envoy.envoy_attributes import JWT_METADATA, MESSAGE, METHOD, SUBJECT, TOKEN_ISSUER
from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.denial_replies import ROUTE as METADATA
from authplane.controlplane.render.native.native_filters import Natives
from authplane.controlplane.render.native.rbac_policies import DECIDED_BY, FOUND, slot_prefix
from authplane.controlplane.render.native.request_classification import RBAC_METADATA, VALID_TOKEN
from authplane.core.values import dataclass
from authplane.policy.mcp.mcp_answers import DenialFormat

_FIELDS: Final = {
    "time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "host": "%REQ(:AUTHORITY)%",
    "path": "%PATH(NQ)%",
    "status": "%RESPONSE_CODE%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "authorization": f"%METADATA(ROUTE:{METADATA}:authorization)%",
    "route": "%ROUTE_NAME%",
    "duration": "%DURATION%",
    "request_id": "%REQ(X-REQUEST-ID)%",
}
"""A line of JSON for each request. The query is left out: tokens travel there.

Every field costs a large gateway dear: Envoy compares all filter chains whenever the listener changes (decision 0009).
"""

_POLICIES: Final = f"%METADATA(ROUTE:{METADATA}:policies)%"
_LONGEST: Final = 256
"""Characters of a value that clients choose."""
_MESSAGE: Final = {
    "mcp_method": f"%DYNAMIC_METADATA({':'.join(METHOD)}):{_LONGEST}%",
    "mcp_name": f"%DYNAMIC_METADATA({':'.join(SUBJECT)}):{_LONGEST}%",
}
_CERTIFICATE: Final = {"spiffe_id": "%DOWNSTREAM_PEER_URI_SAN%"}
_ALL: Final = "metadata.filter_metadata"
_READ: Final = "".join(f"['{key}']" for key in MESSAGE)
_ISSUER: Final = (
    f"('{MESSAGE[0]}' in {_ALL} && '{TOKEN_ISSUER[-1]}' in {_ALL}{_READ} ? "
    f"{_ALL}{_READ}['{TOKEN_ISSUER[-1]}'] : {_ALL}['{RBAC_METADATA}']['{VALID_TOKEN}'])"
)
_CLAIMS: Final = f"{_ALL}['{JWT_METADATA}'][{_ISSUER}]"
_TOKEN: Final = {
    "issuer": f"%CEL({_CLAIMS}['iss']):{_LONGEST}%",
    "subject": f"%CEL({_CLAIMS}['sub']):{_LONGEST}%",
}
"""The token that Envoy verified: without that, it has no claims. Their key is the issuer that the reader of messages
has read, or that the filter for other targets has found. Other formats could not express its colons."""
_CEL: Final = extension_pb2.TypedExtensionConfig(name="envoy.formatter.cel", typed_config=pack(cel_pb2.Cel()))
_FIRST_DENIAL, _LAST_DENIAL = 401, 403
_Filter = accesslog_pb2.AccessLogFilter
_Comparison = accesslog_pb2.ComparisonFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeFields:
    """What the log says of Envoy's own decisions."""

    slots: int
    """How many policies of one target Envoy evaluates one by one."""
    messages: bool
    tokens: bool
    certificates: bool
    denial_format: DenialFormat


def native_fields(natives: Natives) -> NativeFields:
    """Return what the log says where Envoy decides with these filters."""
    return NativeFields(
        slots=natives.slots,
        messages=natives.reads_mcp,
        tokens=natives.verifies_tokens,
        certificates=natives.certificates,
        denial_format=natives.denial_format,
    )


def access_logs(native: NativeFields | None) -> Iterator[accesslog_pb2.AccessLog]:
    """Render the logs, of which one writes a line for each request.

    Where Envoy decides natively, a line names the policies and the rule, and that of a denial also the message and the
    sender. Granted requests are spared those fields: they would cost each of them some 10 µs.
    """
    fields = {name: Value(string_value=text) for name, text in _FIELDS.items()}
    if native is None:
        yield _log(fields)
        return
    found = [DECIDED_BY, *(f"{slot_prefix(number)}{FOUND}" for number in range(native.slots))]
    decided = {each: Value(string_value=f"%DYNAMIC_METADATA({RBAC_METADATA}:{each})%") for each in found}
    fields |= {"policies": Value(string_value=_POLICIES), "decided": Value(struct_value=Struct(fields=decided))}
    more = _of_denials(native)
    denied = fields | {name: Value(string_value=text) for name, text in more.items()}
    if not more or native.denial_format is DenialFormat.JSONRPC200:
        # Denials with the status 200 cannot be told apart by their status.
        yield _log(denied)
    else:
        yield _log(fields, _other_than_denials())
        yield _log(denied, _denials())


def _of_denials(native: NativeFields) -> dict[str, str]:
    message = _MESSAGE if native.messages else {}
    token = _TOKEN if native.tokens else {}
    return message | token | (_CERTIFICATE if native.certificates else {})


def _log(fields: dict[str, Value], which: _Filter | None = None) -> accesslog_pb2.AccessLog:
    written = substitution_format_string_pb2.SubstitutionFormatString(json_format=Struct(fields=fields))
    if any(text in fields for text in _TOKEN):
        written.formatters.append(_CEL)
    log = stream_pb2.StdoutAccessLog(log_format=written)
    return accesslog_pb2.AccessLog(name="envoy.access_loggers.stdout", filter=which, typed_config=pack(log))


def _denials() -> _Filter:
    both = [_status(_Comparison.Op.GE, _FIRST_DENIAL), _status(_Comparison.Op.LE, _LAST_DENIAL)]
    return _Filter(and_filter=accesslog_pb2.AndFilter(filters=both))


def _other_than_denials() -> _Filter:
    either = [_status(_Comparison.Op.LE, _FIRST_DENIAL - 1), _status(_Comparison.Op.GE, _LAST_DENIAL + 1)]
    return _Filter(or_filter=accesslog_pb2.OrFilter(filters=either))


def _status(op: _Comparison.Op.ValueType, status: int) -> _Filter:
    # Envoy wants the name of a runtime setting that could change the number.
    value = base_pb2.RuntimeUInt32(default_value=status, runtime_key=f"authplane.access_log.{status}")
    return _Filter(status_code_filter=accesslog_pb2.StatusCodeFilter(comparison=_Comparison(op=op, value=value)))
