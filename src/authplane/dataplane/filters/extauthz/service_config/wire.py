"""``GrpcService`` to our value, as gRFC A102 reads it."""

from typing import Any, Final

from envoy.config.core.v3 import base_pb2
from envoy.config.core.v3 import grpc_service_pb2 as pb
from envoy.extensions.grpc_service.call_credentials.access_token.v3 import access_token_credentials_pb2 as token_pb
from envoy.extensions.grpc_service.channel_credentials.tls.v3 import tls_credentials_pb2 as tls_pb
from envoy.extensions.grpc_service.channel_credentials.xds.v3 import xds_credentials_pb2 as xds_pb
from google.protobuf import any_pb2, json_format, struct_pb2
from google.protobuf.message import DecodeError

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
from authplane.dataplane.filters.headers import value_fault
from authplane.dataplane.filters.registry import Trust, message_name
from authplane.dataplane.filters.wire import parse_metadata, parse_seconds
from authplane.xds.bootstrap.credentials import (
    GoogleDefault,
    IdentityFiles,
    Insecure,
    TlsFiles,
    parse_channel_credentials,
)
from authplane.xds.bootstrap.json_fields import Fields

_PREFIX: Final = "envoy.extensions.grpc_service.channel_credentials."
_GOOGLE_DEFAULT: Final = f"{_PREFIX}google_default.v3.GoogleDefaultCredentials"
_INSECURE: Final = f"{_PREFIX}insecure.v3.InsecureCredentials"
_TLS: Final = f"{_PREFIX}tls.v3.TlsCredentials"
_XDS: Final = f"{_PREFIX}xds.v3.XdsCredentials"
_TOKEN: Final = "envoy.extensions.grpc_service.call_credentials.access_token.v3.AccessTokenCredentials"  # noqa: S105
_MOST_FALLBACKS: Final = 8
_NO_CREDENTIALS: Final = NamedCredentials(channel=Insecure())
_NO_CHANNEL: Final = SideChannel(target="", credentials=_NO_CREDENTIALS)
NO_SERVICE: Final = GrpcService(channel=_NO_CHANNEL)
"""A placeholder after a problem, which is never used."""


def parse_grpc_service(message: pb.GrpcService, trust: Trust, problems: Problems) -> GrpcService:
    """Read which service to call; what is returned counts only if there are no problems."""
    if message.HasField("google_grpc"):
        with problems.at("google_grpc"):
            channel = _parse_google_grpc(message.google_grpc, trust, problems)
    else:
        problems.add(
            "GoogleGrpcMissing", "google_grpc is missing, and gRPC does not support envoy_grpc. Set google_grpc."
        )
        channel = _NO_CHANNEL
    with problems.at("initial_metadata"):
        metadata = parse_metadata(message.initial_metadata, problems)
    return GrpcService(channel=channel, timeout=_parse_timeout(message, problems), metadata=metadata)


def _parse_timeout(message: pb.GrpcService, problems: Problems) -> float | None:
    if not message.HasField("timeout"):
        return None
    with problems.at("timeout"):
        seconds = parse_seconds(message.timeout, problems)
        if seconds == 0:
            problems.add("DurationInvalid", "The timeout is not positive. Use a duration above 0.")
        return seconds or None


def _parse_google_grpc(message: pb.GrpcService.GoogleGrpc, trust: Trust, problems: Problems) -> SideChannel:
    target = message.target_uri
    with problems.at("target_uri"):
        fault = target_fault(target)
        if fault:
            problems.add("TargetInvalid", f"'{target}' {fault}. Use a target such as 'dns:///host:port'.")
        elif not trust.trusted and target not in trust.allowed_services:
            problems.add(
                "TargetNotAllowed",
                f"'{target}' is not in allowed_grpc_services of the bootstrap, and the xDS server is not trusted. Add"
                " it there, or add trusted_xds_server to the server's features.",
            )
    if not trust.trusted:
        return SideChannel(target=target, credentials=trust.allowed_services.get(target))
    return SideChannel(target=target, credentials=_parse_credentials(message, trust, problems))


def _parse_credentials(message: pb.GrpcService.GoogleGrpc, trust: Trust, problems: Problems) -> NamedCredentials:
    channel = _parse_channel(message, trust, problems)
    calls = _parse_calls(message, problems)
    if channel is None:
        return _NO_CREDENTIALS
    # A token is for private connections only.
    return NamedCredentials(channel=channel, calls=() if _is_plain(channel) else calls)


def _is_plain(channel: NamedChannelCredentials) -> bool:
    """Tell whether connections may be in plain text in the end."""
    return _is_plain(channel.fallback) if isinstance(channel, XdsOr) else isinstance(channel, Insecure)


def _parse_channel(
    message: pb.GrpcService.GoogleGrpc, trust: Trust, problems: Problems
) -> NamedChannelCredentials | None:
    """Parse the first of the three forms of credentials that is set."""
    if message.channel_credentials_plugin:
        with problems.at("channel_credentials_plugin"):
            return _parse_plugins(list(message.channel_credentials_plugin), trust, problems)
    if message.credentials_factory_name:
        return _parse_factory(message, problems)
    with problems.at("channel_credentials"):
        match message.channel_credentials.WhichOneof("credential_specifier"):
            case "google_default":
                return GoogleDefault()
            case "ssl_credentials":
                return _parse_ssl(message.channel_credentials.ssl_credentials, problems)
            case "local_credentials":
                problems.add(
                    "CredentialsUnsupported", "local_credentials is not supported. Use channel_credentials_plugin."
                )
                return None
            case _:
                problems.add(
                    "CredentialsMissing", "The channel credentials are missing. Set channel_credentials_plugin."
                )
                return None


def _parse_plugins(plugins: list[any_pb2.Any], trust: Trust, problems: Problems) -> NamedChannelCredentials | None:
    for index, plugin in enumerate(plugins):
        if message_name(plugin.type_url) in {_GOOGLE_DEFAULT, _INSECURE, _TLS, _XDS}:
            with problems.at(index):
                return _parse_plugin(plugin, trust, problems, depth=1)
    problems.add(
        "CredentialsUnsupported",
        "No credentials in the list are supported. Add supported ones, such as TlsCredentials.",
    )
    return None


def _parse_plugin(
    plugin: any_pb2.Any, trust: Trust, problems: Problems, *, depth: int
) -> NamedChannelCredentials | None:
    name = message_name(plugin.type_url)
    try:
        match name:
            case _ if name == _GOOGLE_DEFAULT:
                return GoogleDefault()
            case _ if name == _INSECURE:
                return Insecure()
            case _ if name == _TLS:
                return _parse_tls(tls_pb.TlsCredentials.FromString(plugin.value), trust, problems)
            case _ if name == _XDS:
                return _parse_xds(xds_pb.XdsCredentials.FromString(plugin.value), trust, problems, depth=depth)
            case _:
                problems.add(
                    "CredentialsUnsupported",
                    f"'{name}' is not supported. Use other credentials, such as TlsCredentials.",
                )
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {name}.")
    return None


def _parse_tls(message: tls_pb.TlsCredentials, trust: Trust, problems: Problems) -> TlsFiles | None:
    """Read whose certificates are used: those of providers that the bootstrap has."""
    with problems.at("root_certificate_provider"):
        root = None
        if message.HasField("root_certificate_provider"):
            root = _parse_provider(message.root_certificate_provider.instance_name, trust, problems)
        else:
            problems.add("ProviderMissing", "This field is required. Add it.")
        if root is not None and root.ca is None:
            problems.add(
                "ProviderUnusable",
                "The certificate provider has no CA certificates. Set ca_certificate_file in the bootstrap.",
            )
    if not message.HasField("identity_certificate_provider"):
        return None if root is None else TlsFiles(ca=root.ca, refresh=root.refresh)
    with problems.at("identity_certificate_provider"):
        own = _parse_provider(message.identity_certificate_provider.instance_name, trust, problems)
        if own is not None and own.identity is None:
            problems.add(
                "ProviderUnusable",
                "The certificate provider has no certificate and key. Set certificate_file and private_key_file in"
                " the bootstrap.",
            )
    if root is None or own is None:
        return None
    return TlsFiles(ca=root.ca, identity=own.identity, refresh=min(root.refresh, own.refresh))


def _parse_provider(name: str, trust: Trust, problems: Problems) -> TlsFiles | None:
    found = trust.certificate_providers.get(name)
    if found is None:
        with problems.at("instance_name"):
            problems.add(
                "ProviderUnknown",
                f"The bootstrap has no certificate provider '{name}'. Add it to certificate_providers.",
            )
    return found


def _parse_xds(message: xds_pb.XdsCredentials, trust: Trust, problems: Problems, *, depth: int) -> XdsOr | None:
    with problems.at("fallback_credentials"):
        if not message.HasField("fallback_credentials"):
            problems.add("CredentialsMissing", "This field is required. Add it.")
            return None
        if depth > _MOST_FALLBACKS:
            problems.add(
                "TooDeep", f"Fallback credentials are nested more than {_MOST_FALLBACKS} levels deep. Use fewer levels."
            )
            return None
        fallback = _parse_plugin(message.fallback_credentials, trust, problems, depth=depth + 1)
        return None if fallback is None else XdsOr(fallback)


def _parse_factory(message: pb.GrpcService.GoogleGrpc, problems: Problems) -> NamedChannelCredentials | None:
    """Read credentials as the bootstrap writes them."""
    with problems.at("config"):
        config = Fields(_json(message.config), problems)
        found = parse_channel_credentials(message.credentials_factory_name, config)
    if found is None:
        with problems.at("credentials_factory_name"):
            problems.add(
                "CredentialsUnsupported",
                f"'{message.credentials_factory_name}' is not supported. Use channel_credentials_plugin.",
            )
    return found


def _json(message: struct_pb2.Struct) -> dict[str, Any]:
    value: dict[str, Any] = json_format.MessageToDict(message)
    return value


def _parse_ssl(message: pb.GrpcService.GoogleGrpc.SslCredentials, problems: Problems) -> TlsFiles:
    roots = _parse_file(message.root_certs, "root_certs", problems) if message.HasField("root_certs") else None
    if message.HasField("private_key") != message.HasField("cert_chain"):
        problems.add("CredentialsInvalid", "Only one of private_key and cert_chain is set. Set both or neither.")
    if not message.HasField("private_key"):
        return TlsFiles(ca=roots)
    chain = _parse_file(message.cert_chain, "cert_chain", problems)
    return TlsFiles(ca=roots, identity=IdentityFiles(chain, _parse_file(message.private_key, "private_key", problems)))


def _parse_file(source: base_pb2.DataSource, field: str, problems: Problems) -> str:
    if not source.filename or "\0" in source.filename:
        with problems.at(field):
            problems.add("CredentialsUnsupported", "The data source is not supported. Set filename.")
    return source.filename


def _parse_calls(message: pb.GrpcService.GoogleGrpc, problems: Problems) -> tuple[AccessToken, ...]:
    """Read all call credentials that are supported; others do not matter."""
    found = []
    for index, plugin in enumerate(message.call_credentials_plugin):
        if message_name(plugin.type_url) == _TOKEN:
            with problems.at("call_credentials_plugin", index):
                found.append(_parse_token(plugin.value, problems))
    if not message.call_credentials_plugin:
        for index, call in enumerate(message.call_credentials):
            if call.WhichOneof("credential_specifier") == "access_token":
                with problems.at("call_credentials", index, "access_token"):
                    found.append(_checked_token(call.access_token, problems))
    return tuple(found)


def _parse_token(data: bytes, problems: Problems) -> AccessToken:
    try:
        token = token_pb.AccessTokenCredentials.FromString(data).token
    except DecodeError:
        problems.add("Unreadable", f"Cannot decode the bytes. Expected {_TOKEN}.")
        return AccessToken(Secret(""))
    with problems.at("token"):
        return _checked_token(token, problems)


def _checked_token(token: str, problems: Problems) -> AccessToken:
    if not token:
        problems.add("TokenMissing", "This field is required. Add it.")
    elif value_fault("authorization", token):
        problems.add(
            "TokenInvalid", "The token contains characters that are not valid in a header. Use printable ASCII."
        )
    return AccessToken(Secret(token))
