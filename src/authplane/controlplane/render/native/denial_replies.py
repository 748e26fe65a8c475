"""The answers to requests that Envoy denies by itself: like those of the policy server, as far as Envoy knows them."""

import json
from collections.abc import Iterator
from typing import Final, assert_never

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.cel.envoy.envoy_attributes import ID, MESSAGE, METHOD, SUBJECT, TOOLS_CALL
from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.rbac_policies import REFUSED
from authplane.policy.decide.token_faults import LONGEST_SHOWN
from authplane.policy.mcp.challenge import BadToken, Cause, Challenge, NoToken, render_challenge
from authplane.policy.mcp.mcp_answers import (
    ACCESS_DENIED,
    AUTHENTICATION_REQUIRED,
    DECISION_ID,
    FORBIDDEN,
    NO_DECISION,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UPSTREAM_FORBIDDEN,
    UPSTREAM_MESSAGE,
    DenialFormat,
    not_granted,
    refusal_message,
)
from authplane.policy.mcp.mcp_refusal import INVALID_REQUEST, Fault
from authplane.policy.mcp.resource_metadata import metadata_path

ROUTE: Final = "authplane"
"""Where routes keep what is said of them."""
_BEFORE_HOST: Final = {NoToken: "challenge", BadToken: "challenge_after_bad_token"}
_AFTER_HOST: Final = "challenge_end"
_SAMPLE: Final = "authority.invalid"

_DENIED: Final = ("response.code == 403", 'response.code_details.startsWith("rbac_access_denied")')
_ASKS: Final = (
    f'"{_BEFORE_HOST[NoToken]}" in xds.route_metadata.filter_metadata["{ROUTE}"]',
    f'!response.code_details.contains("[{REFUSED}]")',
)
_TRIED: Final = 'request.headers["authorization"].startsWith("Bearer")'
_DECISION: Final = "%REQ(X-REQUEST-ID)%"
"""The id of the decision, as the decision log and the access log have it.

Envoy makes it for every request, whatever the client sends, so it is safe inside JSON text.
"""
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_NO_DECISION: Final = (
    "response.code == 503",
    'response.code_details.startsWith("ext_authz_")',
    '!("content-type" in response.headers)',
)
"""The policy server did not answer, or answered without a body of its own."""
_PLACE, _KEY = MESSAGE
_READ: Final = f'"{_PLACE}" in metadata.filter_metadata'
_ANSWERED: Final = (_READ, f'"id" in metadata.filter_metadata["{_PLACE}"].{_KEY}')
"""The message has an id, so its sender waits for an answer."""
_CALLS_TOOL: Final = f'metadata.filter_metadata["{_PLACE}"].{_KEY}.method == "{TOOLS_CALL}"'
_Mapper = hcm_pb2.ResponseMapper
_Format = substitution_format_string_pb2.SubstitutionFormatString
MCP_ROUTE: Final = {"protocol": "mcp"}
"""What a route to MCP servers says of itself."""
_TO_MCP: Final = f'xds.route_metadata.filter_metadata["{ROUTE}"].protocol == "mcp"'


def challenge_fields(scheme: str, realm: str, resource: str, scopes: tuple[str, ...]) -> dict[str, str]:
    """Return what a route keeps for those who show no token, or a bad one: all but the host that they asked for."""
    origin = f"{scheme}://{_SAMPLE}"
    challenge = Challenge(realm=realm, resource_metadata=f"{origin}{metadata_path(resource)}", scopes=scopes)
    # With its quotation mark it cannot be in a realm or a scope: those who choose them may choose any names.
    start = f'resource_metadata="{origin}'
    fields: dict[str, str] = {}
    for cause in (NoToken(), BadToken()):
        before, found, after = render_challenge(challenge, cause).partition(start)
        fields |= {_BEFORE_HOST[type(cause)]: before + found.removesuffix(_SAMPLE), _AFTER_HOST: after}
    return fields


def local_replies(denial_format: DenialFormat, *, tokens: bool) -> hcm_pb2.LocalReplyConfig:
    """Render what takes the place of Envoy's own words; with ``tokens`` some are told where to get one."""
    challenges = _challenges() if tokens else ()
    return hcm_pb2.LocalReplyConfig(
        mappers=[
            *challenges,
            *_forbidden(denial_format),
            _mapper((_READ,), 403, ""),
            _mapper((), 403, f"{ACCESS_DENIED} (decision id {_DECISION})\n", _TEXT),
        ]
    )


def _forbidden(denial_format: DenialFormat) -> Iterator[_Mapper]:
    """Render the reply to a sender that waits for an answer. It repeats the sender's own words, and nothing else."""
    match denial_format:
        case DenialFormat.HTTP403:
            # The reader writes only methods and names of printable ASCII, without quotation marks and backslashes.
            method, tool = (f"%DYNAMIC_METADATA({':'.join(each)}):{LONGEST_SHOWN}%" for each in (METHOD, SUBJECT))
            yield _mapper((*_ANSWERED, _CALLS_TOOL), 403, _error(FORBIDDEN, not_granted(method, tool)))
            yield _mapper(_ANSWERED, 403, _error(FORBIDDEN, not_granted(method, "")))
        case DenialFormat.JSONRPC200:
            yield _mapper(_ANSWERED, 200, _error(UPSTREAM_FORBIDDEN, UPSTREAM_MESSAGE))
        case _:
            assert_never(denial_format)


def mcp_refusals(*, reads_mcp: bool) -> Iterator[_Mapper]:
    """Render the JSON-RPC errors for requests to MCP servers that Envoy denies, or that get no decision.

    With ``reads_mcp`` Envoy reads messages, and knows the ids of some.
    """
    too_large = _error_without_id(INVALID_REQUEST, refusal_message(Fault.BODY_TOO_LARGE))
    yield _refusal((_TO_MCP, "response.code == 413"), 413, too_large)
    if reads_mcp:
        body = _error(UNAVAILABLE, NO_DECISION)
        yield _refusal((_TO_MCP, *_NO_DECISION, *_ANSWERED), 503, _text(body, _JSON))
    yield _refusal((_TO_MCP, *_NO_DECISION), 503, _error_without_id(UNAVAILABLE, NO_DECISION))


def _refusal(conditions: tuple[str, ...], status: int, body: _Format) -> _Mapper:
    return _Mapper(filter=_when(conditions), status_code=UInt32Value(value=status), body_format_override=body)


def _challenges() -> Iterator[_Mapper]:
    causes: tuple[tuple[tuple[str, ...], Cause], ...] = (((_TRIED,), BadToken()), ((), NoToken()))
    for conditions, body in ((_ANSWERED, _error(UNAUTHENTICATED, AUTHENTICATION_REQUIRED)), ((), "")):
        for tried, cause in causes:
            made = _mapper((*_ASKS, *conditions, *tried), 401, body)
            made.headers_to_add.append(_challenged(cause))
            yield made


def _mapper(conditions: tuple[str, ...], status: int, body: str, content_type: str = _JSON) -> _Mapper:
    """Render the reply to senders that rules deny, if all of the conditions apply; the first that matches counts."""
    made = _Mapper(
        filter=_when((*_DENIED, *conditions)),
        status_code=UInt32Value(value=status),
        body=base_pb2.DataSource(inline_string=""),
    )
    if body:
        made.body_format_override.CopyFrom(_text(body, content_type))
    return made


def _text(body: str, content_type: str) -> _Format:
    return _Format(text_format_source=base_pb2.DataSource(inline_string=body), content_type=content_type)


def _when(conditions: tuple[str, ...]) -> accesslog_pb2.AccessLogFilter:
    chosen = accesslog_pb2.ExtensionFilter(
        name="envoy.access_loggers.extension_filters.cel",
        typed_config=pack(cel_pb2.ExpressionFilter(expression=" && ".join(conditions))),
    )
    return accesslog_pb2.AccessLogFilter(extension_filter=chosen)


def _error(code: int, message: str) -> str:
    """Return a JSON-RPC error with the id of the message, as its sender wrote it."""
    error = {"code": code, "message": message, "data": {DECISION_ID: _DECISION}}
    said = json.dumps(error, separators=(",", ":"))
    return f'{{"jsonrpc":"2.0","id":%DYNAMIC_METADATA({":".join(ID)})%,"error":{said}}}'


def _error_without_id(code: int, message: str) -> _Format:
    """Render a JSON-RPC error to a message whose id Envoy does not know."""
    body = Struct()
    data = {DECISION_ID: _DECISION}
    body.update({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": data}})
    return _Format(json_format=body, content_type=_JSON)


def _challenged(cause: Cause) -> base_pb2.HeaderValueOption:
    before, after = (f"%METADATA(ROUTE:{ROUTE}:{key})%" for key in (_BEFORE_HOST[type(cause)], _AFTER_HOST))
    value = f"{before}%REQ(:AUTHORITY)%{after}"
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key="www-authenticate", value=value))
