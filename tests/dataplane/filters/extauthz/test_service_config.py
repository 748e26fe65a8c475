from collections.abc import Callable
from typing import Final, NamedTuple

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.config.core.v3 import grpc_service_pb2 as pb
from envoy.extensions.grpc_service.call_credentials.access_token.v3 import access_token_credentials_pb2 as token_pb
from envoy.extensions.grpc_service.channel_credentials.xds.v3 import xds_credentials_pb2 as xds_pb
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.dataplane.ext_authz_messages import (
    CHANNEL,
    GOOGLE,
    INSECURE,
    TARGET,
    TRUSTED,
    UNTRUSTED,
    google_grpc,
    packed_any,
    tls,
)

from authplane.core.problems import Problems
from authplane.core.secret import Secret
from authplane.dataplane.filters.extauthz.service_config.dial_targets import target_fault
from authplane.dataplane.filters.extauthz.service_config.service import (
    AccessToken,
    GrpcService,
    NamedChannelCredentials,
    NamedCredentials,
    SideChannel,
    XdsOr,
)
from authplane.dataplane.filters.extauthz.service_config.wire import parse_grpc_service
from authplane.dataplane.filters.registry import Trust
from authplane.xds.bootstrap.credentials import GoogleDefault, IdentityFiles, Insecure, TlsFiles

TOKEN: Final = packed_any(token_pb.AccessTokenCredentials(token="secret"))
UNKNOWN: Final = any_pb2.Any(type_url="type.googleapis.com/some.Other")


def parse(message: pb.GrpcService, trust: Trust = UNTRUSTED) -> GrpcService | list[str]:
    problems = Problems()
    found = parse_grpc_service(message, trust, problems)
    return [str(problem) for problem in problems] or found


def named(message: pb.GrpcService) -> NamedCredentials | list[str]:
    found = parse(message, TRUSTED)
    if isinstance(found, list):
        return found
    assert isinstance(found.channel.credentials, NamedCredentials)
    return found.channel.credentials


@pytest.mark.requirement("GS-1")
@pytest.mark.parametrize(
    "message", [pb.GrpcService(), pb.GrpcService(envoy_grpc=pb.GrpcService.EnvoyGrpc(cluster_name="a"))]
)
def test_a_service_without_google_grpc_is_rejected(message: pb.GrpcService) -> None:
    assert parse(message) == [
        "google_grpc is missing, and gRPC does not support envoy_grpc. Set google_grpc. [GoogleGrpcMissing]",
    ]


FIT_TARGETS: Final = (
    "localhost:50051",
    "authz",
    "authz.example.com:443",
    "authz:https",
    "[::1]:50051",
    "127.0.0.1:9000",
    "dns:authz:9000",
    "dns:///authz.example:9000",
    "dns://8.8.8.8/authz.example:9000",
    "DNS:///authz:1",
    "ipv4:127.0.0.1:9000,127.0.0.2:9000",
    "ipv4:///127.0.0.1:9000",
    "ipv6:[::1]:9000",
    "unix:authz.sock",
    "unix:///run/authz.sock",
    "unix-abstract:authz",
    "vsock:2:9000",
    "xds:///authz",
    "xds://authority/authz",
)
UNFIT_TARGETS: Final = (
    "",
    "dns:",
    "dns:///",
    "dns:///a:0",
    "dns:///a:65536",
    "dns:///a:b:c",
    "http://authz:9000",
    "foo:///bar",
    "a b",
    "authz\n",
    "authz:é",
    "ipv4:",
    "ipv4:localhost:1",
    "ipv4:[::1]:1",
    "ipv4:127.0.0.1:1,",
    "ipv6:127.0.0.1:1",
    "unix:",
    "unix-abstract:",
    "xds:///",
    ":443",
    "a/b",
)


@pytest.mark.requirement("GS-2")
def test_targets_that_a_resolver_knows_are_taken_and_no_others() -> None:
    assert [target for target in FIT_TARGETS if target_fault(target)] == []
    assert [target for target in UNFIT_TARGETS if not target_fault(target)] == []


@pytest.mark.requirement("GS-2")
def test_a_target_that_no_resolver_knows_is_a_problem_with_its_path() -> None:
    assert parse(google_grpc("foo:///bar", INSECURE), TRUSTED) == [
        "google_grpc.target_uri: 'foo:///bar' has the scheme 'foo', which is unknown. Use a target such as"
        " 'dns:///host:port'. [TargetInvalid]"
    ]
    assert parse(google_grpc("", INSECURE), TRUSTED) == [
        "google_grpc.target_uri: '' is empty. Use a target such as 'dns:///host:port'. [TargetInvalid]"
    ]


@pytest.mark.requirement("GS-4", "GS-3", "E36")
def test_a_server_without_trust_may_name_only_what_the_bootstrap_allows_and_no_credentials() -> None:
    assert parse(google_grpc(TARGET, GOOGLE)) == GrpcService(channel=CHANNEL)
    assert parse(google_grpc(TARGET, UNKNOWN)) == GrpcService(channel=CHANNEL)
    for near in ("authz.example:9000", "dns:///authz.example:9001", TARGET + "/", TARGET.upper()):
        found = parse(google_grpc(near, INSECURE))
        assert isinstance(found, list)
        assert found[0].startswith("google_grpc.target_uri: ")


@pytest.mark.requirement("GS-3")
def test_a_trusted_server_may_name_any_service_and_its_credentials() -> None:
    want = GrpcService(channel=SideChannel(target="authz:1", credentials=NamedCredentials(channel=Insecure())))
    assert parse(google_grpc("authz:1", INSECURE), TRUSTED) == want


class Plugins(NamedTuple):
    plugins: tuple[any_pb2.Any, ...]
    want: object


def xds_or(fallback: any_pb2.Any | None) -> any_pb2.Any:
    return packed_any(xds_pb.XdsCredentials(fallback_credentials=fallback))


def nested(depth: int) -> any_pb2.Any:
    found = INSECURE
    for _ in range(depth):
        found = xds_or(found)
    return found


AT: Final = "google_grpc.channel_credentials_plugin"
PLUGINS: Final = {
    "insecure": Plugins((INSECURE,), Insecure()),
    "google_default": Plugins((GOOGLE,), GoogleDefault()),
    "the first that is supported": Plugins((UNKNOWN, GOOGLE, INSECURE), GoogleDefault()),
    "tls": Plugins((tls(),), TlsFiles(ca="/ca.pem", refresh=60.0)),
    "tls with an identity": Plugins(
        (tls("root", "own"),),
        TlsFiles(ca="/ca.pem", identity=IdentityFiles("/chain.pem", "/key.pem"), refresh=30.0),
    ),
    "xds": Plugins((xds_or(GOOGLE),), XdsOr(GoogleDefault())),
    "xds twice": Plugins((nested(2),), XdsOr(XdsOr(Insecure()))),
    "none that is supported": Plugins(
        (UNKNOWN,),
        [
            f"{AT}: No credentials in the list are supported. Add supported ones, such as TlsCredentials."
            " [CredentialsUnsupported]"
        ],
    ),
    "tls without a root": Plugins(
        (tls(None), INSECURE), [f"{AT}[0].root_certificate_provider: This field is required. Add it. [ProviderMissing]"]
    ),
    "tls with providers that the bootstrap does not have": Plugins(
        (tls("other", "another"),),
        [
            f"{AT}[0].root_certificate_provider.instance_name: "
            "The bootstrap has no certificate provider 'other'. Add it to certificate_providers. [ProviderUnknown]",
            f"{AT}[0].identity_certificate_provider.instance_name: "
            "The bootstrap has no certificate provider 'another'. Add it to certificate_providers. [ProviderUnknown]",
        ],
    ),
    "tls with providers that have something else": Plugins(
        (tls("own", "root"),),
        [
            f"{AT}[0].root_certificate_provider: The certificate provider has no CA certificates. Set"
            " ca_certificate_file in the bootstrap. [ProviderUnusable]",
            f"{AT}[0].identity_certificate_provider: "
            "The certificate provider has no certificate and key. Set certificate_file and private_key_file in the"
            " bootstrap. [ProviderUnusable]",
        ],
    ),
    "tls that is rubbish": Plugins(
        (any_pb2.Any(type_url=tls().type_url, value=b"\xff"),),
        [f"{AT}[0]: Cannot decode the bytes. Expected {tls().type_url.rpartition('/')[2]}. [Unreadable]"],
    ),
    "xds without fallback": Plugins(
        (xds_or(None),), [f"{AT}[0].fallback_credentials: This field is required. Add it. [CredentialsMissing]"]
    ),
    "xds with a fallback that nobody knows": Plugins(
        (xds_or(UNKNOWN),),
        [
            f"{AT}[0].fallback_credentials: 'some.Other' is not supported. Use other credentials, such as"
            " TlsCredentials. [CredentialsUnsupported]"
        ],
    ),
    "nothing": Plugins(
        (),
        [
            "google_grpc.channel_credentials: "
            "The channel credentials are missing. Set channel_credentials_plugin. [CredentialsMissing]"
        ],
    ),
}


@pytest.mark.requirement("GS-5")
@pytest.mark.parametrize("case", PLUGINS.values(), ids=PLUGINS.keys())
def test_channel_credentials(case: Plugins) -> None:
    found = named(google_grpc(TARGET, *case.plugins))
    assert (found if isinstance(found, list) else found.channel) == case.want


def test_credentials_cannot_fall_back_for_ever() -> None:
    found = named(google_grpc(TARGET, nested(9)))
    assert isinstance(found, list)
    assert found[0].endswith("Fallback credentials are nested more than 8 levels deep. Use fewer levels. [TooDeep]")


@pytest.mark.requirement("GS-6")
def test_all_call_credentials_that_are_supported_apply() -> None:
    message = google_grpc(TARGET, GOOGLE)
    other = packed_any(token_pb.AccessTokenCredentials(token="more"))
    message.google_grpc.call_credentials_plugin.extend([TOKEN, UNKNOWN, other])
    want = (AccessToken(Secret("secret")), AccessToken(Secret("more")))
    assert named(message) == NamedCredentials(channel=GoogleDefault(), calls=want)
    assert "secret" not in repr(named(message))


@pytest.mark.requirement("GS-6")
@pytest.mark.parametrize(
    ("plugin", "channel"),
    [
        (INSECURE, Insecure()),
        (xds_or(INSECURE), XdsOr(Insecure())),
        (nested(2), XdsOr(XdsOr(Insecure()))),
    ],
)
def test_a_token_is_not_sent_in_plain_text(plugin: any_pb2.Any, channel: NamedChannelCredentials) -> None:
    message = google_grpc(TARGET, plugin)
    message.google_grpc.call_credentials_plugin.append(TOKEN)
    assert named(message) == NamedCredentials(channel=channel)


@pytest.mark.requirement("GS-6")
@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (token_pb.AccessTokenCredentials(), "[0].token: This field is required. Add it. [TokenMissing]"),
        (
            token_pb.AccessTokenCredentials(token="a\nb"),
            "[0].token: The token contains characters that are not valid in a header. Use printable ASCII."
            " [TokenInvalid]",
        ),
    ],
)
def test_a_token_that_is_none_is_rejected(plugin: token_pb.AccessTokenCredentials, problem: str) -> None:
    message = google_grpc(TARGET, GOOGLE)
    message.google_grpc.call_credentials_plugin.append(packed_any(plugin))
    assert named(message) == [f"google_grpc.call_credentials_plugin{problem}"]


def factory(name: str, **config: str) -> pb.GrpcService:
    message = google_grpc(TARGET)
    message.google_grpc.credentials_factory_name = name
    message.google_grpc.config.update(config)
    return message


@pytest.mark.requirement("GS-7")
def test_a_factory_name_selects_credentials_as_the_bootstrap_writes_them_before_channel_credentials() -> None:
    message = factory("tls", ca_certificate_file="/ca.pem")
    message.google_grpc.channel_credentials.google_default.SetInParent()
    assert named(message) == NamedCredentials(channel=TlsFiles(ca="/ca.pem"))
    assert named(factory("insecure")) == NamedCredentials(channel=Insecure())
    assert named(factory("other")) == [
        "google_grpc.credentials_factory_name: 'other' is not supported. Use"
        " channel_credentials_plugin. [CredentialsUnsupported]"
    ]
    assert named(factory("tls", certificate_file="/cert.pem")) == [
        "google_grpc.config.private_key_file: This field is required together with certificate_file. Add it. [Missing]"
    ]
    message = factory("other")
    message.google_grpc.channel_credentials_plugin.append(INSECURE)
    assert named(message) == NamedCredentials(channel=Insecure())


@pytest.mark.requirement("GS-7")
def test_older_channel_credentials_are_read_last() -> None:
    message = google_grpc(TARGET)
    old = message.google_grpc.channel_credentials
    old.google_default.SetInParent()
    assert named(message) == NamedCredentials(channel=GoogleDefault())
    old.ssl_credentials.root_certs.filename = "/ca"
    assert named(message) == NamedCredentials(channel=TlsFiles(ca="/ca"))
    old.ssl_credentials.private_key.filename = "/key"
    old.ssl_credentials.cert_chain.filename = "/chain"
    message.google_grpc.call_credentials.add().access_token = "secret"
    want = TlsFiles(ca="/ca", identity=IdentityFiles("/chain", "/key"))
    assert named(message) == NamedCredentials(channel=want, calls=(AccessToken(Secret("secret")),))
    old.ssl_credentials.private_key.inline_string = "key"
    assert named(message) == [
        "google_grpc.channel_credentials.private_key: The data source is not supported. Set filename."
        " [CredentialsUnsupported]"
    ]
    old.local_credentials.SetInParent()
    assert named(message) == [
        "google_grpc.channel_credentials: local_credentials is not supported. Use channel_credentials_plugin."
        " [CredentialsUnsupported]"
    ]


class Timeout(NamedTuple):
    seconds: int
    nanos: int
    want: float | None


TIMEOUTS: Final = {
    "seconds and parts": Timeout(1, 500_000_000, 1.5),
    "one nanosecond": Timeout(0, 1, 1e-9),
    "the longest is as good as a century": Timeout(315_576_000_000, 0, 3e9),
    "zero": Timeout(0, 0, None),
    "negative": Timeout(-1, 0, None),
    "negative parts": Timeout(1, -1, None),
    "too many parts": Timeout(0, 1_000_000_000, None),
    "too long": Timeout(315_576_000_001, 0, None),
}


@pytest.mark.requirement("GS-8")
@pytest.mark.parametrize("case", TIMEOUTS.values(), ids=TIMEOUTS.keys())
def test_timeouts(case: Timeout) -> None:
    message = google_grpc()
    message.timeout.CopyFrom(duration_pb2.Duration(seconds=case.seconds, nanos=case.nanos))
    found = parse(message)
    if case.want is None:
        assert isinstance(found, list)
        assert "timeout: " in found[0]
    else:
        assert found == GrpcService(channel=CHANNEL, timeout=case.want)


@pytest.mark.requirement("GS-9")
def test_initial_metadata_is_kept_and_what_is_no_header_is_rejected() -> None:
    message = google_grpc()
    message.initial_metadata.add(key="x-tenant", value="a")
    message.initial_metadata.add(key="x-bin", raw_value=b"\0")
    assert parse(message) == GrpcService(channel=CHANNEL, metadata=(("x-tenant", "a"), ("x-bin", b"\0")))
    message.initial_metadata.add(key="Host", value="a")
    message.initial_metadata.add(key="grpc-x", value="a")
    message.initial_metadata.add(key="x", value="\n")
    assert parse(message) == [
        "initial_metadata[2]: Invalid header: 'Host' is not a header name. Correct its name or value. [HeaderInvalid]",
        "initial_metadata[3]: Invalid header: header 'grpc-x' cannot be set. Correct its name or value."
        " [HeaderInvalid]",
        "initial_metadata[4]: Invalid header: the value of 'x' has characters that are not printable ASCII. Correct"
        " its name or value. [HeaderInvalid]",
    ]


@pytest.mark.requirement("GS-10")
def test_what_does_not_count_is_ignored() -> None:
    message = google_grpc()
    message.google_grpc.stat_prefix = "x"
    message.google_grpc.per_stream_buffer_limit_bytes.value = 1
    message.google_grpc.channel_args.args["a"].int_value = 1
    message.retry_policy.CopyFrom(base_pb2.RetryPolicy(retry_on="5xx"))
    assert parse(message) == GrpcService(channel=CHANNEL)


CHANGES: Final[dict[str, tuple[Callable[[pb.GrpcService], object], bool]]] = {
    "nothing": (lambda _: None, True),
    "the timeout": (lambda message: message.timeout.FromSeconds(3), True),
    "the metadata": (lambda message: message.initial_metadata.add(key="a", value="b"), True),
    "the target": (lambda message: message.google_grpc.MergeFrom(google_grpc("authz:2").google_grpc), False),
    "the credentials": (lambda message: message.google_grpc.channel_credentials_plugin.insert(0, GOOGLE), False),
    "the token": (
        lambda message: message.google_grpc.call_credentials_plugin.append(
            packed_any(token_pb.AccessTokenCredentials(token="b"))
        ),
        False,
    ),
}


@pytest.mark.requirement("GS-12")
@pytest.mark.parametrize(("change", "same"), CHANGES.values(), ids=CHANGES.keys())
def test_the_channel_is_another_one_only_if_target_or_credentials_change(
    change: Callable[[pb.GrpcService], object], same: bool
) -> None:
    before, after = google_grpc(TARGET, tls()), google_grpc(TARGET, tls())
    change(after)
    first, second = parse(before, TRUSTED), parse(after, TRUSTED)
    assert isinstance(first, GrpcService)
    assert isinstance(second, GrpcService)
    assert (first.channel == second.channel) is same
    assert (len({first.channel, second.channel}) == 1) is same


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_raise(data: bytes, trusted: bool) -> None:
    try:
        message = pb.GrpcService.FromString(data)
    except DecodeError:
        return
    parse_grpc_service(message, Trust(trusted=trusted), Problems())


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=30))
def test_no_target_raises(target: str) -> None:
    for scheme in ("", "dns:", "ipv4:", "ipv6:", "unix:", "xds:"):
        target_fault(scheme + target)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan"), 3.1e9, float("inf")])
def test_a_program_cannot_give_a_check_no_time_or_more_than_there_is(timeout: float) -> None:
    with pytest.raises(ValueError, match="a century"):
        GrpcService(channel=CHANNEL, timeout=timeout)


@pytest.mark.parametrize(
    "pair",
    [("X-Tenant", "a"), ("", "a"), ("host", "a"), ("grpc-timeout", "1S"), ("x", "a\n"), ("x", b"a"), ("x-bin", "a")],
)
def test_a_program_cannot_send_headers_with_checks_that_are_none(pair: tuple[str, str | bytes]) -> None:
    with pytest.raises(ValueError, match=r"^Cannot set header"):
        GrpcService(channel=CHANNEL, metadata=(pair,))
