"""Parts that many messages have."""

from typing import Final, TypeVar

from envoy.config.core.v3 import address_pb2, config_source_pb2
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import Message

from authplane.core.addresses import parse_ip_address
from authplane.core.problems import Problems
from authplane.dataplane.filters.calls import Endpoint
from authplane.dataplane.filters.extensions.wire import parse_message, parse_type_url

M = TypeVar("M", bound=Message)

_MOST_SECONDS: Final = 315_576_000_000
_FOR_EVER: Final = 3e9
"""Seconds, about a century: grpcio accepts no longer times, since its clock ends before."""


def parse_packed(kind: type[M], message: any_pb2.Any, problems: Problems) -> M | None:
    """Parse an ``Any`` that must contain this message; None after a problem."""
    name = parse_type_url(message.type_url, problems)
    if name is None:
        return None
    if name != kind.DESCRIPTOR.full_name:
        with problems.at("type_url"):
            problems.add("TypeUnsupported", f"'{name}' is not supported here. Supported: {kind.DESCRIPTOR.full_name}.")
        return None
    return parse_message(kind, message.value, problems)


def parse_duration(message: duration_pb2.Duration, problems: Problems) -> float | None:
    """Return the seconds of a duration that is not negative, at most a century; None is a problem."""
    if not 0 <= message.seconds <= _MOST_SECONDS:
        with problems.at("seconds"):
            problems.add(
                "DurationInvalid", f"{message.seconds} is out of range. Use a number from 0 to {_MOST_SECONDS}."
            )
        return None
    if not 0 <= message.nanos <= 999_999_999:
        with problems.at("nanos"):
            problems.add("DurationInvalid", f"{message.nanos} is out of range. Use a number from 0 to 999999999.")
        return None
    return min(message.seconds + message.nanos / 1e9, _FOR_EVER)


def parse_ads_source(message: config_source_pb2.ConfigSource, problems: Problems) -> None:
    """Report a source of resources that is not the stream itself."""
    if message.WhichOneof("config_source_specifier") not in {"ads", "self"}:
        problems.add("SourceUnsupported", "The configuration source is not supported. Supported: ads, self.")


def parse_ip_endpoint(message: address_pb2.Address, problems: Problems) -> Endpoint | None:
    """Read an address that must be an IP address and a port; None is a problem."""
    found = parse_endpoint(message, problems)
    if found is None:
        return None
    address = parse_ip_address(found.address)
    if address is None:
        with problems.at("socket_address", "address"):
            problems.add("AddressInvalid", f"'{found.address}' is not an IP address. Use an IPv4 or IPv6 address.")
        return None
    return Endpoint(address=str(address), port=found.port)


def parse_endpoint(message: address_pb2.Address, problems: Problems) -> Endpoint | None:
    """Read an address that must be a host and a TCP port; None is a problem."""
    with problems.at("socket_address"):
        if not message.HasField("socket_address"):
            problems.add("Missing", "This field is required. Add it.")
            return None
        socket = message.socket_address
        before = problems.error_count
        if socket.protocol != address_pb2.SocketAddress.TCP:
            with problems.at("protocol"):
                problems.add("ProtocolUnsupported", "The protocol is not supported. Supported: TCP.")
        if socket.port_value > 65535:
            with problems.at("port_value"):
                problems.add("PortInvalid", f"{socket.port_value} is not a port. Use a number from 0 to 65535.")
        if problems.error_count != before:
            return None
        return Endpoint(address=socket.address, port=socket.port_value)
