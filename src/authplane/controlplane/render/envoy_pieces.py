"""Small pieces of Envoy configuration that occur in many places."""

from datetime import timedelta
from typing import Final, assert_never

from envoy.config.core.v3 import address_pb2, config_source_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from authplane.core.timeouts import After, Disabled, Timeout, UseDefault

FROM_ADS: Final = config_source_pb2.ConfigSource(
    ads=config_source_pb2.AggregatedConfigSource(), resource_api_version=config_source_pb2.ApiVersion.V3
)
TLS_VERSIONS: Final = {
    "1.2": common_pb2.TlsParameters.TlsProtocol.TLSv1_2,
    "1.3": common_pb2.TlsParameters.TlsProtocol.TLSv1_3,
}


def pack(message: Message) -> Any:
    """Wrap a message; the same message gives the same bytes."""
    return Any(type_url=type_url(message), value=message.SerializeToString(deterministic=True))


def type_url(message: Message) -> str:
    """Return the name under which Envoy knows a message."""
    return f"type.googleapis.com/{message.DESCRIPTOR.full_name}"


def duration(value: timedelta) -> Duration:
    """Convert a duration."""
    message = Duration()
    message.FromTimedelta(value)
    return message


def limit(timeout: Timeout) -> Duration | None:
    """Convert a timeout: None leaves it to Envoy, and zero is how Envoy writes "never"."""
    match timeout:
        case UseDefault():
            return None
        case Disabled():
            return Duration()
        case After(after):
            return duration(after)
        case _:
            assert_never(timeout)


def socket_address(address: str, port: int) -> address_pb2.Address:
    """Name a TCP address."""
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=address, port_value=port))
