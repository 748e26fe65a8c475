"""Parses ``ExtAuthz``, and defines the filter type for the registry."""

from collections.abc import Iterable
from typing import Final, Literal

from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2 as pb
from envoy.type.matcher.v3 import string_pb2 as string_pb
from google.protobuf.message import DecodeError

from authplane.core.feature_flags import FeatureFlags
from authplane.core.problems import Problem, Problems
from authplane.core.values import dataclass
from authplane.dataplane.filters.calls import Code, Side
from authplane.dataplane.filters.extauthz.authorize_call import FAIL_CLOSED, ExtAuthz, FailOpen
from authplane.dataplane.filters.extauthz.check_messages.shown_call import CheckForm, Shown, check_form
from authplane.dataplane.filters.extauthz.decision_cache import Caching
from authplane.dataplane.filters.extauthz.service_config.wire import NO_SERVICE, parse_grpc_service
from authplane.dataplane.filters.grpc_status import code_of_http
from authplane.dataplane.filters.headers import NO_RULES
from authplane.dataplane.filters.registry import FilterType, Packed, Parse, Scope, Trust
from authplane.dataplane.filters.wire import parse_rules
from authplane.matching.fractions import ALWAYS, Fraction
from authplane.matching.string_matchers import StringMatchers
from authplane.matching.wire import parse_runtime_fraction, parse_string_matchers

TYPE_NAME: Final = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz"
OVERRIDE_NAME: Final = "envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtAuthzOptions:
    """Settings of a program in addition to the configuration from xDS."""

    check_request: CheckForm | Literal["a92", "envoy"] = CheckForm.A92
    a102_append: bool = False
    caching: Caching | None = None

    def __post_init__(self) -> None:
        check_form(self.check_request)


@dataclass(frozen=True, slots=True)
class ExtAuthzOverride:
    """An override without effective fields; a route uses it to disable the filter."""


DEFAULT_OPTIONS: Final = ExtAuthzOptions()
ALL_ON: Final = FeatureFlags()


def ext_authz_type(options: ExtAuthzOptions = DEFAULT_OPTIONS, flags: FeatureFlags = ALL_ON) -> FilterType | None:
    """Return the filter type for a registry; None if it is disabled for clients and servers."""
    switches = ((Side.CLIENT, flags.ext_authz_on_client), (Side.SERVER, flags.ext_authz_on_server))
    sides = frozenset(side for side, on in switches if on)
    if not sides:
        return None
    return FilterType(
        type_urls=(TYPE_NAME,),
        override_urls=(OVERRIDE_NAME,),
        sides=sides,
        parse=_parse_with(options),
        parse_override=parse_ext_authz_override,
    )


def parse_ext_authz(
    packed: Packed, trust: Trust, options: ExtAuthzOptions = DEFAULT_OPTIONS
) -> ExtAuthz | tuple[Problem, ...]:
    """Parse the configuration; report every problem."""
    problems = Problems()
    try:
        message = pb.ExtAuthz.FromString(packed.value)
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {TYPE_NAME}.")
        return problems.errors
    config = _parse(message, trust, options, problems)
    return problems.errors or config


def parse_ext_authz_override(packed: Packed, scope: Scope) -> ExtAuthzOverride | tuple[Problem, ...]:
    """Check that an override can be decoded."""
    del scope
    try:
        pb.ExtAuthzPerRoute.FromString(packed.value)
    except DecodeError:
        return (Problem((), "Unreadable", f"Cannot decode the bytes. Expected {OVERRIDE_NAME}."),)
    return ExtAuthzOverride()


def _parse_with(options: ExtAuthzOptions) -> Parse:
    def parse(packed: Packed, scope: Scope) -> ExtAuthz | tuple[Problem, ...]:
        return parse_ext_authz(packed, scope.trust, options)

    return parse


def _parse(message: pb.ExtAuthz, trust: Trust, options: ExtAuthzOptions, problems: Problems) -> ExtAuthz:
    with problems.at("grpc_service"):
        if message.HasField("grpc_service"):
            service = parse_grpc_service(message.grpc_service, trust, problems)
        else:
            problems.add("ServiceMissing", "Services over plain HTTP are not supported. Set grpc_service.")
            service = NO_SERVICE
    shown = Shown(
        allowed_headers=_parse_list(message.allowed_headers.patterns, "allowed_headers", problems),
        disallowed_headers=_parse_list(message.disallowed_headers.patterns, "disallowed_headers", problems),
        peer_certificate=message.include_peer_certificate,
        form=check_form(options.check_request),
    )
    with problems.at("decoder_header_mutation_rules"):
        ruled = message.HasField("decoder_header_mutation_rules")
        rules = parse_rules(message.decoder_header_mutation_rules, problems) if ruled else NO_RULES
    return ExtAuthz(
        service=service,
        enabled=_parse_enabled(message, problems),
        deny_at_disable=_parse_deny_at_disable(message, problems),
        on_failure=FailOpen(message.failure_mode_allow_header_add) if message.failure_mode_allow else FAIL_CLOSED,
        error_code=_parse_error_code(message),
        shown=shown,
        rules=rules,
        a102_append=options.a102_append,
        caching=options.caching,
    )


def _parse_list(patterns: Iterable[string_pb.StringMatcher], field: str, problems: Problems) -> StringMatchers:
    with problems.at(field):
        return parse_string_matchers(patterns, problems)


def _parse_enabled(message: pb.ExtAuthz, problems: Problems) -> Fraction:
    if not message.HasField("filter_enabled"):
        return ALWAYS
    with problems.at("filter_enabled"):
        return parse_runtime_fraction(message.filter_enabled, problems) or ALWAYS


def _parse_deny_at_disable(message: pb.ExtAuthz, problems: Problems) -> bool:
    if not message.HasField("deny_at_disable"):
        return False
    if not message.deny_at_disable.HasField("default_value"):
        with problems.at("deny_at_disable", "default_value"):
            problems.add("ValueMissing", "This field is required. Add it.")
    return message.deny_at_disable.default_value.value


def _parse_error_code(message: pb.ExtAuthz) -> Code:
    status = int(message.status_on_error.code)
    return code_of_http(status) if status else Code.PERMISSION_DENIED
