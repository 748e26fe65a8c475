"""Messages and configurations for tests of ext_authz."""

from typing import Final

from envoy.config.core.v3 import base_pb2, grpc_service_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.grpc_service.channel_credentials.tls.v3 import tls_credentials_pb2
from envoy.service.auth.v3 import external_auth_pb2 as pb
from google.protobuf import any_pb2
from google.protobuf.message import Message

from authplane.dataplane.filters.extauthz.service_config.service import GrpcService, SideChannel
from authplane.dataplane.filters.registry import Trust
from authplane.xds.bootstrap.credentials import IdentityFiles, Insecure, ServiceCredentials, TlsFiles

TARGET: Final = "dns:///authz.example:9000"
MAP_CREDENTIALS: Final = ServiceCredentials(channel=Insecure())
UNTRUSTED: Final = Trust(allowed_services={TARGET: MAP_CREDENTIALS})
PROVIDERS: Final = {
    "root": TlsFiles(ca="/ca.pem", refresh=60.0),
    "own": TlsFiles(identity=IdentityFiles("/chain.pem", "/key.pem"), refresh=30.0),
}
TRUSTED: Final = Trust(trusted=True, certificate_providers=PROVIDERS)
CHANNEL: Final = SideChannel(target=TARGET, credentials=MAP_CREDENTIALS)
SERVICE: Final = GrpcService(channel=CHANNEL)
CREDENTIALS: Final = "type.googleapis.com/envoy.extensions.grpc_service.channel_credentials."
INSECURE: Final = any_pb2.Any(type_url=f"{CREDENTIALS}insecure.v3.InsecureCredentials")
GOOGLE: Final = any_pb2.Any(type_url=f"{CREDENTIALS}google_default.v3.GoogleDefaultCredentials")


def packed_any(message: Message) -> any_pb2.Any:
    found = any_pb2.Any()
    found.Pack(message)
    return found


def tls(root: str | None = "root", identity: str | None = None) -> any_pb2.Any:
    message = tls_credentials_pb2.TlsCredentials()
    if root is not None:
        message.root_certificate_provider.instance_name = root
    if identity is not None:
        message.identity_certificate_provider.instance_name = identity
    return packed_any(message)


def google_grpc(target: str = TARGET, *plugins: any_pb2.Any) -> grpc_service_pb2.GrpcService:
    return grpc_service_pb2.GrpcService(
        google_grpc=grpc_service_pb2.GrpcService.GoogleGrpc(target_uri=target, channel_credentials_plugin=plugins)
    )


def config() -> ext_authz_pb2.ExtAuthz:
    return ext_authz_pb2.ExtAuthz(grpc_service=google_grpc())


def header(key: str, value: str = "v", action: int = 0) -> base_pb2.HeaderValueOption:
    made = base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key=key, value=value))
    made.append_action = action  # type: ignore[assignment]
    return made


def allowed(**parts: list[base_pb2.HeaderValueOption] | list[str]) -> pb.CheckResponse:
    response = pb.CheckResponse()
    response.status.code = 0
    response.ok_response.headers.extend(parts.get("headers", []))  # type: ignore[arg-type]
    response.ok_response.headers_to_remove.extend(parts.get("remove", []))  # type: ignore[arg-type]
    response.ok_response.response_headers_to_add.extend(parts.get("response", []))  # type: ignore[arg-type]
    return response


def denied(status: int = 0, *headers: base_pb2.HeaderValueOption, message: str = "") -> pb.CheckResponse:
    response = pb.CheckResponse()
    response.status.code = 7
    response.status.message = message
    response.denied_response.status.code = status  # type: ignore[assignment]
    response.denied_response.headers.extend(headers)
    return response
