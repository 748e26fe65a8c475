"""Messages of the client status discovery service. No secret leaves in them."""

from collections.abc import Iterable
from typing import Any, Final

from envoy.admin.v3 import config_dump_shared_pb2 as admin_pb
from envoy.service.status.v3 import csds_pb2 as pb
from google.protobuf import any_pb2, descriptor_pool, message_factory, struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from udpa.annotations import sensitive_pb2

from authplane.core.values import dataclass
from authplane.xds.client.resource_cache import ClientDump, Dumped, Standing
from authplane.xds.client.wire import render_node

REDACTED: Final = "[redacted]"
_DEEPEST: Final = 64
_SECRETS: Final = frozenset({"token", "access_token", "password", "private_key", "secret", "client_secret", "api_key"})
"""Names of fields that contain secrets though nothing marks them."""
_HEADER: Final = "envoy.config.core.v3.HeaderValue"
_DATA_SOURCE: Final = "envoy.config.core.v3.DataSource"

_STATUS: Final = {
    Standing.REQUESTED: admin_pb.REQUESTED,
    Standing.DOES_NOT_EXIST: admin_pb.DOES_NOT_EXIST,
    Standing.ACKED: admin_pb.ACKED,
    Standing.NACKED: admin_pb.NACKED,
    Standing.RECEIVED_ERROR: admin_pb.RECEIVED_ERROR,
    Standing.TIMEOUT: admin_pb.TIMEOUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest:
    """A request for the client's status."""

    matches_nodes: bool
    """Whether it selects clients by their nodes, which a client itself does not answer."""
    without_contents: bool


def parse_status_request(data: bytes) -> StatusRequest | None:
    """Read a ``ClientStatusRequest``; None means that the bytes are none."""
    try:
        message = pb.ClientStatusRequest.FromString(data)
    except DecodeError:
        return None
    return StatusRequest(matches_nodes=bool(message.node_matchers), without_contents=message.exclude_resource_contents)


def render_status(clients: Iterable[ClientDump], *, contents: bool) -> bytes:
    """Write a ``ClientStatusResponse`` about clients of this process."""
    message = pb.ClientStatusResponse()
    for client in clients:
        config = message.config.add(client_scope=client.scope)
        config.node.CopyFrom(render_node(client.node))
        # Whatever a program's owner wrote there is not ours to show.
        config.node.ClearField("metadata")
        for resource in client.resources:
            _add_resource(config, resource, client.epoch, contents=contents)
    return message.SerializeToString(deterministic=True)


def redact(packed: any_pb2.Any, depth: int = 0) -> any_pb2.Any:
    """Return a message without its secrets; without all content if its type is unknown."""
    name = packed.type_url.rpartition("/")[2]
    bare = any_pb2.Any(type_url=packed.type_url)
    if depth > _DEEPEST:
        return bare
    try:
        kind = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
        message = kind.FromString(packed.value)
    except (KeyError, DecodeError):
        return bare
    # Fields that are newer than our definitions cannot be judged.
    message.DiscardUnknownFields()
    _redact(message, depth)
    bare.value = message.SerializeToString(deterministic=True)
    return bare


def _add_resource(config: pb.ClientConfig, resource: Dumped, epoch: float, *, contents: bool) -> None:
    entry = config.generic_xds_configs.add(
        type_url=resource.key.type_url, name=resource.key.name, client_status=_STATUS[resource.standing]
    )
    if (held := resource.held) is not None:
        entry.version_info = held.version
        entry.last_updated.CopyFrom(_timestamp(held.since + epoch))
        if contents:
            entry.xds_config.CopyFrom(redact(any_pb2.Any(type_url=resource.key.type_url, value=held.body)))
    if (setback := resource.setback) is not None:
        entry.error_state.details = setback.fault.message
        entry.error_state.version_info = setback.version
        entry.error_state.last_update_attempt.CopyFrom(_timestamp(setback.at + epoch))


def _redact(message: Message, depth: int) -> None:
    if isinstance(message, struct_pb2.Struct | struct_pb2.Value | struct_pb2.ListValue):
        message.Clear()
        return
    if isinstance(message, any_pb2.Any):
        message.CopyFrom(redact(message, depth + 1))
        return
    header = message.DESCRIPTOR.full_name == _HEADER
    for field, value in message.ListFields():
        if (header and field.name != "key") or _is_secret(field):
            _blot(message, field)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in _messages(field, value):
                _redact(each, depth + 1)


def _is_secret(field: FieldDescriptor) -> bool:
    marked: bool = field.GetOptions().Extensions[sensitive_pb2.sensitive]
    plain = field.type in {FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}
    return marked or (plain and field.name in _SECRETS)


def _blot(message: Message, field: FieldDescriptor) -> None:
    """Put a mark where a secret was, if there is room for one."""
    message.ClearField(field.name)
    if field.is_repeated:
        return
    if field.type == FieldDescriptor.TYPE_STRING:
        setattr(message, field.name, REDACTED)
    elif field.type == FieldDescriptor.TYPE_BYTES:
        setattr(message, field.name, REDACTED.encode())
    elif field.message_type is not None and field.message_type.full_name == _DATA_SOURCE:
        getattr(message, field.name).inline_string = REDACTED


def _messages(field: FieldDescriptor, value: Any) -> list[Message]:
    """Return the messages in a field: one, a list, or the values of a map."""
    if not field.is_repeated:
        return [value]
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return list(value)
    held = entry.fields_by_name["value"]
    return list(value.values()) if held.type == FieldDescriptor.TYPE_MESSAGE else []


def _timestamp(seconds: float) -> Timestamp:
    made = Timestamp()
    made.FromNanoseconds(int(seconds * 1e6) * 1000)
    return made
