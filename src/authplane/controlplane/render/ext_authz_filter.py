"""The configuration of Envoy's ext_authz filter, and its changes on a route."""

from datetime import timedelta
from typing import Final, TypeAlias, assert_never

from envoy.config.common.mutation_rules.v3 import mutation_rules_pb2
from envoy.config.core.v3 import base_pb2, config_source_pb2, grpc_service_pb2, http_uri_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2 as pb
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from envoy.type.v3 import http_status_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.wrappers_pb2 import BoolValue, UInt32Value

from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    CheckedBody,
    FailClosed,
    FailOpen,
    HeaderNames,
    NameTest,
    OverGrpc,
    OverHttp,
    Shadow,
)
from authplane.controlplane.render.envoy_pieces import duration
from authplane.controlplane.render.newer_fields import SHADOW_MODE
from authplane.controlplane.render.varint import varint
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault
from authplane.core.values import dataclass

NOBODY: Final = "authplane/nobody"
"""A cluster that never exists: a check without an authorization service gets no answer."""

_RETRIES: Final = base_pb2.RetryPolicy(
    retry_on="connect-failure,refused-stream,reset", num_retries=UInt32Value(value=2)
)
"""For checks whose connection ends, such as that of a worker that hangs: another connection leads to another worker."""
_DEFAULT_TIMEOUT: Final = timedelta(milliseconds=200)
# What an authorization service may never rewrite: the rest of the request would mean something else.
_KEPT_HEADERS: Final = "^(:path|content-length|transfer-encoding|connection|te|upgrade)$"


@dataclass(frozen=True, slots=True)
class AskGrpc:
    """Asks over gRPC."""


@dataclass(frozen=True, slots=True)
class AskHttp:
    """Asks over HTTP, and sends these headers of the request along."""

    request_headers: tuple[HeaderNames, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What one instance of the filter does for all of its routes: Envoy does not let a route change it."""

    ask: AskGrpc | AskHttp
    on_failure: FailClosed | FailOpen | Shadow
    body: CheckedBody | None


_Services: TypeAlias = pb.ExtAuthz | pb.CheckSettings


def manner_of(service: AuthorizationService) -> Manner:
    """Return what a service asks of the instance of the filter that serves it."""
    protocol = service.protocol
    ask = AskGrpc() if isinstance(protocol, OverGrpc) else AskHttp(protocol.request_headers)
    return Manner(ask=ask, on_failure=service.on_failure, body=service.body)


def render_filter(manner: Manner, service: AuthorizationService | None, *, clear_route_cache: bool) -> pb.ExtAuthz:
    """Render an instance of the filter; without a service, every route has to name one."""
    message = pb.ExtAuthz(
        transport_api_version=config_source_pb2.ApiVersion.V3,
        failure_mode_allow=isinstance(manner.on_failure, FailOpen),
        status_on_error=_status_on_error(manner.on_failure),
        clear_route_cache=clear_route_cache,
        include_peer_certificate=True,
        validate_mutations=True,
        decoder_header_mutation_rules=kept_headers(),
    )
    _ask(message, service or _nobody(manner))
    if isinstance(manner.ask, AskHttp) and manner.ask.request_headers:
        message.allowed_headers.CopyFrom(_names(manner.ask.request_headers))
    if manner.body is not None:
        message.with_request_body.CopyFrom(
            pb.BufferSettings(
                max_request_bytes=manner.body.most_bytes,
                allow_partial_message=manner.body.partial,
                pack_as_bytes=manner.body.as_bytes,
            )
        )
    if isinstance(manner.on_failure, Shadow):
        set_shadow_mode(message)
    return message


def render_disabled() -> pb.ExtAuthzPerRoute:
    """Render that an instance of the filter leaves a route alone."""
    return pb.ExtAuthzPerRoute(disabled=True)


def render_check(service: AuthorizationService | None, context: tuple[tuple[str, str], ...]) -> pb.ExtAuthzPerRoute:
    """Render what a route adds to its checks: the service, unless the filter has it, and the context."""
    settings = pb.CheckSettings(context_extensions=dict(context))
    if service is not None:
        _ask(settings, service)
    return pb.ExtAuthzPerRoute(check_settings=settings)


def set_shadow_mode(message: pb.ExtAuthz) -> None:
    """Make the filter ask, count the answer and let every request through, as Envoy 1.38 and later can."""
    message.MergeFromString(varint(SHADOW_MODE << 3) + b"\x01")


def kept_headers() -> mutation_rules_pb2.HeaderMutationRules:
    """Return the rules for what an authorization service changes about a request."""
    return mutation_rules_pb2.HeaderMutationRules(
        disallow_expression=regex_pb2.RegexMatcher(regex=_KEPT_HEADERS), disallow_is_error=BoolValue(value=True)
    )


def _status_on_error(on_failure: FailClosed | FailOpen | Shadow) -> http_status_pb2.HttpStatus:
    status = on_failure.status if isinstance(on_failure, FailClosed) else FailClosed().status
    return http_status_pb2.HttpStatus(code=http_status_pb2.StatusCode.ValueType(status))


def _nobody(manner: Manner) -> AuthorizationService:
    protocol = OverGrpc(authority="") if isinstance(manner.ask, AskGrpc) else OverHttp()
    return AuthorizationService(
        cluster=NOBODY, protocol=protocol, timeout=UseDefault(), on_failure=manner.on_failure, body=manner.body
    )


def _ask(message: _Services, service: AuthorizationService) -> None:
    match service.protocol:
        case OverGrpc(authority=authority, retried=retried):
            message.grpc_service.CopyFrom(
                grpc_service_pb2.GrpcService(
                    envoy_grpc=grpc_service_pb2.GrpcService.EnvoyGrpc(
                        cluster_name=service.cluster, authority=authority
                    ),
                    timeout=_timeout(service.timeout),
                    retry_policy=_RETRIES if retried else None,
                )
            )
        case OverHttp(path_prefix=prefix, upstream_headers=names):
            # The address is only there because it must be: the cluster knows where to go.
            uri = http_uri_pb2.HttpUri(
                uri="http://dummy/",
                cluster=service.cluster,
                timeout=_timeout(service.timeout) or duration(_DEFAULT_TIMEOUT),
            )
            message.http_service.CopyFrom(pb.HttpService(server_uri=uri, path_prefix=prefix))
            if names:
                message.http_service.authorization_response.allowed_upstream_headers.CopyFrom(_names(names))
        case _:
            assert_never(service.protocol)


def _timeout(timeout: Timeout) -> Duration | None:
    match timeout:
        case UseDefault():
            return None  # Envoy waits 200 ms
        case Disabled():
            return Duration()  # Envoy waits for ever, since 1.38
        case After(after):
            return duration(after)
        case _:
            assert_never(timeout)


def _names(names: tuple[HeaderNames, ...]) -> string_pb2.ListStringMatcher:
    return string_pb2.ListStringMatcher(patterns=[header_matcher(each) for each in names])


def header_matcher(name: HeaderNames) -> string_pb2.StringMatcher:
    """Render which headers a rule selects."""
    match name.test:
        case NameTest.EXACT:
            return string_pb2.StringMatcher(exact=name.text, ignore_case=name.ignore_case)
        case NameTest.PREFIX:
            return string_pb2.StringMatcher(prefix=name.text, ignore_case=name.ignore_case)
        case NameTest.SUFFIX:
            return string_pb2.StringMatcher(suffix=name.text, ignore_case=name.ignore_case)
        case NameTest.CONTAINS:
            return string_pb2.StringMatcher(contains=name.text, ignore_case=name.ignore_case)
        case _:
            assert_never(name.test)
