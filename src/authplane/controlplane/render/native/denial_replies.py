"""The answers to requests that Envoy denies by itself: like those of the policy server, as far as Envoy knows them."""

from collections.abc import Iterator
from typing import Final

from envoy.config.accesslog.v3 import accesslog_pb2
from envoy.config.core.v3 import base_pb2, substitution_format_string_pb2
from envoy.extensions.access_loggers.filters.cel.v3 import cel_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import UInt32Value

from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.rbac_policies import REFUSED
from authplane.core.envoy_releases import Release
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
_FORBIDDEN: Final = {
    DenialFormat.HTTP403: (403, FORBIDDEN, ACCESS_DENIED),
    DenialFormat.JSONRPC200: (200, UPSTREAM_FORBIDDEN, UPSTREAM_MESSAGE),
}
_DECISION: Final = "%REQ(X-REQUEST-ID)%"
"""The id of the decision, as the decision log and the access log have it."""
_TEXT: Final = "text/plain; charset=utf-8"
_NO_DECISION: Final = (
    "response.code == 503",
    'response.code_details.startsWith("ext_authz_")',
    '!("content-type" in response.headers)',
)
"""The policy server did not answer, or answered without a body of its own."""
_PLAIN_TEXT: Final = r'"^[ !#-\\[\\]-~]*$"'
_Mapper = hcm_pb2.ResponseMapper
MCP_ROUTE: Final = {"protocol": "mcp"}
"""What a route to MCP servers says of itself."""
_NO_MCP: Final = ("mcp_reject_no_mcp", "mcp_parse_error", "mcp_not_jsonrpc", "mcp_duplicate_keys")
"""Why the mcp filter does not take a request for MCP."""
_WITH_SESSIONS: Final = (
    '!("mcp-protocol-version" in request.headers && request.headers["mcp-protocol-version"] == "2026-07-28")'
)
"""What the mcp filter of Envoy 1.40 says of mistakes in the version without sessions is JSON-RPC already."""
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


def local_replies(envoy: Release, denial_format: DenialFormat, *, tokens: bool) -> hcm_pb2.LocalReplyConfig:
    """Render what takes the place of Envoy's own words; with ``tokens`` some are told where to get one."""
    found = f'"{envoy.mcp_metadata}" in metadata.filter_metadata'
    answered = (found, f'"id" in metadata.filter_metadata["{envoy.mcp_metadata}"]')
    challenges = _challenges(envoy, answered) if tokens else ()
    status, code, message = _FORBIDDEN[denial_format]
    return hcm_pb2.LocalReplyConfig(
        mappers=[
            *challenges,
            _mapper(answered, status, _error(envoy, code, message)),
            _mapper((found,), 403, None),
            _mapper((), 403, None, text=f"{ACCESS_DENIED} (decision id {_DECISION})\n"),
        ]
    )


def mcp_refusals(envoy: Release | None) -> Iterator[_Mapper]:
    """Render the JSON-RPC errors for requests to MCP servers that Envoy refuses, or that nobody decides.

    ``envoy`` is the release that reads bodies, and refuses what it does not take for MCP; None if none are read. Then
    Envoy does not know the ids of requests.
    """
    large = 'response.code_details == "mcp_body_too_large"'
    too_large = _error(None, INVALID_REQUEST, refusal_message(Fault.BODY_TOO_LARGE))
    yield _refusal((_TO_MCP, f"(response.code == 413 || {large})"), 413, too_large)
    if envoy is not None:
        refused = " || ".join(f'response.code_details == "{each}"' for each in _NO_MCP)
        body = _error(None, INVALID_REQUEST, "%LOCAL_REPLY_BODY%")
        yield _refusal((_TO_MCP, f"({refused})", _WITH_SESSIONS), 400, body)
        yield _refusal((_TO_MCP, *_NO_DECISION, *_plain_id(envoy)), 503, _error(envoy, UNAVAILABLE, NO_DECISION))
    yield _refusal((_TO_MCP, *_NO_DECISION), 503, _error(None, UNAVAILABLE, NO_DECISION))


def _plain_id(envoy: Release) -> tuple[str, ...]:
    """Return what holds for a message whose id Envoy repeats as it was written; see `has_odd_id`."""
    id_ = f'metadata.filter_metadata["{envoy.mcp_metadata}"].id'
    return (
        f'"{envoy.mcp_metadata}" in metadata.filter_metadata',
        f'"id" in metadata.filter_metadata["{envoy.mcp_metadata}"]',
        f"(type({id_}) == string ? {id_}.matches({_PLAIN_TEXT}) : ({id_} >= -99999.0 && {id_} < 100000.0))",
    )


def _refusal(conditions: tuple[str, ...], status: int, body: Struct) -> _Mapper:
    return _Mapper(filter=_when(conditions), status_code=UInt32Value(value=status), body_format_override=_json(body))


def _challenges(envoy: Release, answered: tuple[str, ...]) -> Iterator[_Mapper]:
    error = _error(envoy, UNAUTHENTICATED, AUTHENTICATION_REQUIRED)
    causes: tuple[tuple[tuple[str, ...], Cause], ...] = (((_TRIED,), BadToken()), ((), NoToken()))
    for conditions, body in ((answered, error), ((), None)):
        for tried, cause in causes:
            made = _mapper((*_ASKS, *conditions, *tried), 401, body)
            made.headers_to_add.append(_challenged(cause))
            yield made


def _mapper(conditions: tuple[str, ...], status: int, body: Struct | None, text: str = "") -> _Mapper:
    """Render what is said to those whom rules deny, if all of the conditions hold too; the first that fits counts."""
    made = _Mapper(
        filter=_when((*_DENIED, *conditions)),
        status_code=UInt32Value(value=status),
        body=base_pb2.DataSource(inline_string=""),
    )
    if body is not None:
        made.body_format_override.CopyFrom(_json(body))
    elif text:
        made.body_format_override.text_format_source.inline_string = text
        made.body_format_override.content_type = _TEXT
    return made


def _json(body: Struct) -> substitution_format_string_pb2.SubstitutionFormatString:
    return substitution_format_string_pb2.SubstitutionFormatString(json_format=body, content_type="application/json")


def _when(conditions: tuple[str, ...]) -> accesslog_pb2.AccessLogFilter:
    chosen = accesslog_pb2.ExtensionFilter(
        name="envoy.access_loggers.extension_filters.cel",
        typed_config=pack(cel_pb2.ExpressionFilter(expression=" && ".join(conditions))),
    )
    return accesslog_pb2.AccessLogFilter(extension_filter=chosen)


def _error(envoy: Release | None, code: int, message: str) -> Struct:
    """Render a JSON-RPC error; without a release that reads bodies it has no id."""
    id_ = None if envoy is None else f"%DYNAMIC_METADATA({envoy.mcp_metadata}:id)%"
    body = Struct()
    body.update(
        {
            "jsonrpc": "2.0",
            "id": id_,
            "error": {"code": code, "message": message, "data": {DECISION_ID: _DECISION}},
        }
    )
    return body


def _challenged(cause: Cause) -> base_pb2.HeaderValueOption:
    before, after = (f"%METADATA(ROUTE:{ROUTE}:{key})%" for key in (_BEFORE_HOST[type(cause)], _AFTER_HOST))
    value = f"{before}%REQ(:AUTHORITY)%{after}"
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key="www-authenticate", value=value))
