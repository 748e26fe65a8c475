from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2 as pb
from envoy.type.v3 import percent_pb2
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.driven_calls import packed, regex
from tests.support.dataplane.ext_authz_messages import CHANNEL, SERVICE, TARGET, UNTRUSTED, config

from authplane.core.feature_flags import FeatureFlags
from authplane.dataplane.filters.calls import Code, Side
from authplane.dataplane.filters.extauthz.authorize_call import ExtAuthz, FailOpen
from authplane.dataplane.filters.extauthz.check_messages.shown_call import CheckForm, Shown
from authplane.dataplane.filters.extauthz.decision_cache import Caching
from authplane.dataplane.filters.extauthz.wire import (
    ExtAuthzOptions,
    ExtAuthzOverride,
    ext_authz_type,
    parse_ext_authz,
    parse_ext_authz_override,
)
from authplane.dataplane.filters.headers import Rules
from authplane.dataplane.filters.registry import Packed, Registry, Scope
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.matching.fractions import Fraction
from authplane.matching.string_matchers import Contains, Exact, Prefix, Suffix

SCOPE: Final = Scope(side=Side.SERVER, trust=UNTRUSTED, registry=Registry.of())
DEFAULT: Final = ExtAuthz(service=SERVICE)


def parse(change: Callable[[pb.ExtAuthz], object]) -> ExtAuthz | list[str]:
    message = config()
    change(message)
    found = parse_ext_authz(packed(message), UNTRUSTED)
    return found if isinstance(found, ExtAuthz) else [str(problem) for problem in found]


@pytest.mark.requirement("EA-4", "EA-8", "EA-3", "EA-38")
def test_what_is_not_set_has_its_default() -> None:
    assert parse(lambda _: None) == DEFAULT
    assert (
        ExtAuthz(service=SERVICE, error_code=Code.PERMISSION_DENIED, shown=Shown(peer_certificate=False), caching=None)
        == DEFAULT
    )


@pytest.mark.requirement("GS-1")
@pytest.mark.parametrize("with_http", [False, True])
def test_a_configuration_without_a_grpc_service_is_rejected(with_http: bool) -> None:
    message = pb.ExtAuthz()
    if with_http:
        message.http_service.path_prefix = "/"
    found = parse_ext_authz(packed(message), UNTRUSTED)
    assert isinstance(found, tuple)
    assert [str(problem) for problem in found] == [
        "grpc_service: Services over plain HTTP are not supported. Set grpc_service. [ServiceMissing]"
    ]


class Enabled(NamedTuple):
    numerator: int
    denominator: int
    want: Fraction


FRACTIONS: Final = {
    "a part of a hundred": Enabled(25, percent_pb2.FractionalPercent.HUNDRED, Fraction(250_000)),
    "a part of ten thousand": Enabled(25, percent_pb2.FractionalPercent.TEN_THOUSAND, Fraction(2_500)),
    "a part of a million": Enabled(25, percent_pb2.FractionalPercent.MILLION, Fraction(25)),
    "nothing": Enabled(0, percent_pb2.FractionalPercent.HUNDRED, Fraction(0)),
    "more than all": Enabled(429_497, percent_pb2.FractionalPercent.HUNDRED, Fraction(1_000_000)),
    "the largest": Enabled(2**32 - 1, percent_pb2.FractionalPercent.TEN_THOUSAND, Fraction(1_000_000)),
}


@pytest.mark.requirement("EA-1", "E35")
@pytest.mark.parametrize("case", FRACTIONS.values(), ids=FRACTIONS.keys())
def test_the_fraction_of_calls_is_capped(case: Enabled) -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.filter_enabled.runtime_key = "ignored"
        message.filter_enabled.default_value.numerator = case.numerator
        message.filter_enabled.default_value.denominator = case.denominator  # type: ignore[assignment]

    assert parse(change) == ExtAuthz(service=SERVICE, enabled=case.want)


@pytest.mark.requirement("E35", "EA-2")
def test_values_without_a_default_are_rejected() -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.filter_enabled.runtime_key = message.deny_at_disable.runtime_key = "x"

    assert parse(change) == [
        "filter_enabled.default_value: This field is required. Add it. [ValueMissing]",
        "deny_at_disable.default_value: This field is required. Add it. [ValueMissing]",
    ]


@pytest.mark.requirement("EA-2")
@pytest.mark.parametrize("value", [True, False])
def test_deny_at_disable_is_read(value: bool) -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.deny_at_disable.default_value.value = value

    assert parse(change) == ExtAuthz(service=SERVICE, deny_at_disable=value)


@pytest.mark.requirement("EA-3")
@pytest.mark.parametrize(
    ("status", "code"),
    [(0, Code.PERMISSION_DENIED), (401, Code.UNAUTHENTICATED), (503, Code.UNAVAILABLE), (200, Code.UNKNOWN)],
)
def test_the_status_on_error_is_one_of_http(status: int, code: Code) -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.status_on_error.code = status  # type: ignore[assignment]

    assert parse(change) == ExtAuthz(service=SERVICE, error_code=code)


@pytest.mark.requirement("EA-4")
def test_failing_open_must_be_configured() -> None:
    def change(message: pb.ExtAuthz, *, allow: bool, add: bool) -> None:
        message.failure_mode_allow, message.failure_mode_allow_header_add = allow, add

    assert parse(lambda message: change(message, allow=False, add=True)) == DEFAULT
    assert parse(lambda message: change(message, allow=True, add=False)) == ExtAuthz(
        service=SERVICE, on_failure=FailOpen()
    )
    assert parse(lambda message: change(message, allow=True, add=True)) == ExtAuthz(
        service=SERVICE, on_failure=FailOpen(mark_request=True)
    )


@pytest.mark.requirement("EA-6")
def test_lists_of_headers_are_read_and_an_invalid_matcher_is_rejected() -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.allowed_headers.patterns.add(exact="a", ignore_case=True)
        message.allowed_headers.patterns.add(prefix="b")
        message.allowed_headers.patterns.add(contains="c")
        message.allowed_headers.patterns.add().safe_regex.regex = "d.*"
        message.disallowed_headers.patterns.add(suffix="e")

    lists = Shown(
        allowed_headers=(Exact("a", ignore_case=True), Prefix("b"), Contains("c"), regex("d.*")),
        disallowed_headers=(Suffix("e"),),
    )
    assert parse(change) == ExtAuthz(service=SERVICE, shown=lists)

    def spoil(message: pb.ExtAuthz) -> None:
        change(message)
        message.allowed_headers.patterns.add().safe_regex.regex = "("
        message.disallowed_headers.patterns.add()

    found = parse(spoil)
    assert isinstance(found, list)
    assert [problem.partition(": ")[0] for problem in found] == [
        "allowed_headers.patterns[4].safe_regex.regex",
        "disallowed_headers.patterns[1]",
    ]


@pytest.mark.requirement("EA-7")
def test_mutation_rules_are_read() -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.decoder_header_mutation_rules.allow_expression.regex = "x-.*"
        message.decoder_header_mutation_rules.disallow_is_error.value = True

    want = Rules(allow=regex("x-.*"), disallow_is_error=True)
    assert parse(change) == ExtAuthz(service=SERVICE, rules=want)
    found = parse(lambda message: message.decoder_header_mutation_rules.allow_expression.SetInParent())
    assert found == [
        "decoder_header_mutation_rules.allow_expression.regex: '' is empty. Use the RE2 syntax. [RegexInvalid]"
    ]


@pytest.mark.requirement("EA-8")
def test_a_check_contains_the_peer_certificate_if_configured() -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.include_peer_certificate = True

    assert parse(change) == ExtAuthz(service=SERVICE, shown=Shown(peer_certificate=True))


def fill_what_is_ignored(message: pb.ExtAuthz) -> None:
    message.stat_prefix = message.bootstrap_metadata_labels_key = "x"
    message.charge_cluster_response_stats.value = message.enable_dynamic_metadata_ingestion.value = True
    message.emit_filter_state_stats = message.clear_route_cache = message.validate_mutations = True
    message.encode_raw_headers = message.include_tls_session = message.enforce_response_header_limits = True
    message.transport_api_version = 1  # type: ignore[assignment]
    message.with_request_body.max_request_bytes = 5
    message.max_denied_response_body_bytes = 5
    for names in (
        message.metadata_context_namespaces,
        message.typed_metadata_context_namespaces,
        message.route_metadata_context_namespaces,
        message.route_typed_metadata_context_namespaces,
    ):
        names.append("x")
    message.filter_metadata.update({"a": 1})
    message.filter_enabled_metadata.filter = "x"


@pytest.mark.requirement("EA-9")
def test_fields_without_meaning_here_are_ignored() -> None:
    assert parse(fill_what_is_ignored) == DEFAULT
    message = config()
    fill_what_is_ignored(message)
    used = {"grpc_service", "failure_mode_allow", "failure_mode_allow_header_add", "status_on_error", "filter_enabled"}
    used |= {"deny_at_disable", "include_peer_certificate", "allowed_headers", "disallowed_headers", "http_service"}
    ignored = {field.name for field in pb.ExtAuthz.DESCRIPTOR.fields} - used - {"decoder_header_mutation_rules"}
    assert ignored <= {field.name for field, _ in message.ListFields()}, "every field is used or tested here"


@pytest.mark.requirement("EA-10")
def test_an_override_must_be_one_and_says_nothing() -> None:
    message = pb.ExtAuthzPerRoute(disabled=True)
    assert parse_ext_authz_override(packed(message), SCOPE) == ExtAuthzOverride()
    rich = pb.ExtAuthzPerRoute()
    rich.check_settings.context_extensions["a"] = "b"
    assert parse_ext_authz_override(packed(rich), SCOPE) == ExtAuthzOverride()
    found = parse_ext_authz_override(Packed("x", b"\xff"), SCOPE)
    assert isinstance(found, tuple)
    assert found[0].reason == "Unreadable"


def test_equal_messages_make_equal_values_that_can_be_hashed() -> None:
    first, second = parse_ext_authz(packed(config()), UNTRUSTED), parse_ext_authz(packed(config()), UNTRUSTED)
    assert first == second
    assert hash(first) == hash(second)


def test_options_of_the_program_are_in_the_value() -> None:
    options = ExtAuthzOptions(check_request=CheckForm.ENVOY, a102_append=True, caching=Caching(headers=("X-Tenant",)))
    kind = ext_authz_type(options)
    assert kind is not None
    assert kind.parse(packed(config()), SCOPE) == ExtAuthz(
        service=SERVICE,
        shown=Shown(form=CheckForm.ENVOY),
        a102_append=True,
        caching=Caching(headers=("authorization", "x-tenant")),
    )


class Guarded(NamedTuple):
    flags: FeatureFlags
    sides: set[Side] | None


GUARDED: Final = {
    "on": Guarded(FeatureFlags(), {Side.CLIENT, Side.SERVER}),
    "off for clients": Guarded(FeatureFlags(ext_authz_on_client=False), {Side.SERVER}),
    "off for servers": Guarded(FeatureFlags(ext_authz_on_server=False), {Side.CLIENT}),
    "off": Guarded(FeatureFlags(ext_authz_on_client=False, ext_authz_on_server=False), None),
}


@pytest.mark.parametrize("case", GUARDED.values(), ids=GUARDED.keys())
def test_guards_switch_the_filter_off(case: Guarded) -> None:
    found = standard_registry(case.flags).configs.get("envoy.extensions.filters.http.ext_authz.v3.ExtAuthz")
    assert (None if found is None else set(found.sides)) == case.sides


def test_all_problems_are_reported_at_once() -> None:
    def change(message: pb.ExtAuthz) -> None:
        message.grpc_service.google_grpc.target_uri = "other:1"
        message.grpc_service.timeout.seconds = -1
        message.filter_enabled.SetInParent()
        message.allowed_headers.patterns.add()

    found = parse(change)
    assert isinstance(found, list)
    assert [problem.partition(": ")[0] for problem in found] == [
        "grpc_service.google_grpc.target_uri",
        "grpc_service.timeout",
        "allowed_headers.patterns[0]",
        "filter_enabled.default_value",
    ]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_raise(data: bytes, after: bool) -> None:
    whole = config().SerializeToString() + data if after else data
    found = parse_ext_authz(Packed("x", whole), UNTRUSTED)
    assert isinstance(found, ExtAuthz) or found
    assert parse_ext_authz_override(Packed("x", data), SCOPE)
    if isinstance(found, ExtAuthz):
        assert found.service.channel == CHANNEL
        assert found.service.channel.target == TARGET
