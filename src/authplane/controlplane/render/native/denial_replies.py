"""What clients are told whom Envoy denies by itself: the words of the policy server, as far as Envoy knows them."""

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
    FORBIDDEN,
    UNAUTHENTICATED,
    UPSTREAM_FORBIDDEN,
    UPSTREAM_MESSAGE,
    DenialFormat,
)
from authplane.policy.mcp.mcp_refusal import INVALID_REQUEST
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
    DenialFormat.HTTP403: (403, FORBIDDEN, "access denied"),
    DenialFormat.JSONRPC200: (200, UPSTREAM_FORBIDDEN, UPSTREAM_MESSAGE),
}
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
            _mapper((), 403, None, text="access denied\n"),
        ]
    )


def mcp_refusals(*, reads_mcp: bool) -> Iterator[_Mapper]:
    """Render the JSON-RPC errors for requests to MCP servers that Envoy refuses before it knows their ids.

    With ``reads_mcp`` it reads bodies, and refuses what it does not take for MCP.
    """
    large = 'response.code_details == "mcp_body_too_large"'
    yield _refusal((_TO_MCP, f"(response.code == 413 || {large})"), 413, "body too large")
    if reads_mcp:
        refused = " || ".join(f'response.code_details == "{each}"' for each in _NO_MCP)
        yield _refusal((_TO_MCP, f"({refused})", _WITH_SESSIONS), 400, "%LOCAL_REPLY_BODY%")


def _refusal(conditions: tuple[str, ...], status: int, message: str) -> _Mapper:
    body = Struct()
    body.update({"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": message}})
    return _Mapper(filter=_when(conditions), status_code=UInt32Value(value=status), body_format_override=_json(body))


def _challenges(envoy: Release, answered: tuple[str, ...]) -> Iterator[_Mapper]:
    error = _error(envoy, UNAUTHENTICATED, "authentication required")
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
        body=base_pb2.DataSource(inline_string=text),
    )
    if body is not None:
        made.body_format_override.CopyFrom(_json(body))
    return made


def _json(body: Struct) -> substitution_format_string_pb2.SubstitutionFormatString:
    return substitution_format_string_pb2.SubstitutionFormatString(json_format=body, content_type="application/json")


def _when(conditions: tuple[str, ...]) -> accesslog_pb2.AccessLogFilter:
    chosen = accesslog_pb2.ExtensionFilter(
        name="envoy.access_loggers.extension_filters.cel",
        typed_config=pack(cel_pb2.ExpressionFilter(expression=" && ".join(conditions))),
    )
    return accesslog_pb2.AccessLogFilter(extension_filter=chosen)


def _error(envoy: Release, code: int, message: str) -> Struct:
    body = Struct()
    body.update(
        {
            "jsonrpc": "2.0",
            "id": f"%DYNAMIC_METADATA({envoy.mcp_metadata}:id)%",
            "error": {"code": code, "message": message},
        }
    )
    return body


def _challenged(cause: Cause) -> base_pb2.HeaderValueOption:
    before, after = (f"%METADATA(ROUTE:{ROUTE}:{key})%" for key in (_BEFORE_HOST[type(cause)], _AFTER_HOST))
    value = f"{before}%REQ(:AUTHORITY)%{after}"
    return base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key="www-authenticate", value=value))
