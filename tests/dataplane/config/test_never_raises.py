"""No bytes make a decoder raise, and what is refused says why."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from google.protobuf import any_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dataplane.config.cases import CLIENT_LISTENERS, CLUSTERS, ENDPOINTS, ROUTES, SERVER_LISTENERS
from tests.support.dataplane.plain_filters import CLIENT, SERVER, TRUST

from authplane.dataplane.config.read.decode_resource import (
    decode_cluster,
    decode_endpoints,
    decode_listener,
    decode_routes,
)
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.registry import Scope
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.xds.client.watched_types import Invalid

Decode = Callable[[bytes, Scope], Any]
STANDARD: Final = Scope(side=Side.SERVER, trust=TRUST, registry=standard_registry())
TABLES: Final[dict[Decode, list[Message]]] = {
    decode_listener: [case.resource for table in (CLIENT_LISTENERS, SERVER_LISTENERS) for case in table.values()],
    decode_routes: [case.resource for case in ROUTES.values()],
    decode_cluster: [case.resource for case in CLUSTERS.values()],
    decode_endpoints: [case.resource for case in ENDPOINTS.values()],
}
ALL: Final = pytest.mark.parametrize("decode", TABLES, ids=lambda each: each.__name__)


def judge(decode: Decode, data: bytes) -> None:
    for scope in (CLIENT, SERVER, STANDARD):
        got = decode(data, scope)
        if isinstance(got, Invalid):
            assert got.problems
            assert all(str(problem).isprintable() for problem in got.problems)
        else:
            assert got == decode(data, scope)


@ALL
@settings(deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes(decode: Decode, data: bytes) -> None:
    judge(decode, data)


@pytest.mark.slow
@ALL
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_bytes_of_resources_with_some_of_them_changed(decode: Decode, data: st.DataObject) -> None:
    found = bytearray(data.draw(st.sampled_from(TABLES[decode])).SerializeToString())
    for _ in range(data.draw(st.integers(0, 4))):
        if found:
            place = data.draw(st.integers(0, len(found) - 1))
            found[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    judge(decode, bytes(found))


def filled(message: Message, data: st.DataObject, depth: int) -> None:
    """Set some fields of a message, and of the messages in it, to anything."""
    fields = [field for field in message.DESCRIPTOR.fields if not field.GetOptions().deprecated or depth < 2]
    for field in data.draw(st.lists(st.sampled_from(fields), max_size=3)) if fields else ():
        if field.message_type is None:
            set_scalar(message, field, data)
        elif depth and not is_map(field.message_type):
            child = getattr(message, field.name)
            target = child.add() if field.is_repeated else child
            target.SetInParent()
            filled(target, data, depth - 1)


def refilled(message: Message, data: st.DataObject) -> None:
    """Fill the messages that are packed in a message, too."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for child in each_message(field, value):
            if isinstance(child, any_pb2.Any):
                repacked(child, data)
            else:
                refilled(child, data)


def each_message(field: Any, value: Any) -> list[Message]:
    if is_map(field.message_type):
        return [each for each in value.values() if isinstance(each, Message)]
    return list(value) if field.is_repeated else [value]


def repacked(packed: any_pb2.Any, data: st.DataObject) -> None:
    try:
        kind = GetMessageClass(Default().FindMessageTypeByName(packed.type_url.rpartition("/")[2]))
        inner = kind.FromString(packed.value)
    except (KeyError, DecodeError):
        return
    filled(inner, data, depth=4)
    refilled(inner, data)
    packed.value = inner.SerializeToString()


def is_map(kind: Any) -> bool:
    return bool(kind.GetOptions().map_entry)


def set_scalar(message: Message, field: Any, data: st.DataObject) -> None:
    value: Any
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            value = data.draw(st.binary(max_size=3))
        case FieldDescriptor.CPPTYPE_STRING:
            value = data.draw(st.sampled_from(["", "a", "*", "/", "(", "10.0.0.1", "::1", "\x00", "é"]))
        case FieldDescriptor.CPPTYPE_BOOL:
            value = data.draw(st.booleans())
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            value = data.draw(st.sampled_from([0.0, -1.0, float("nan"), float("inf")]))
        case FieldDescriptor.CPPTYPE_ENUM:
            value = data.draw(st.sampled_from([0, 1, 2, 77]))
        case FieldDescriptor.CPPTYPE_UINT32:
            value = data.draw(st.sampled_from([0, 1, 65_536, 2**32 - 1]))
        case _:
            value = data.draw(st.sampled_from([0, 1, 100, 2**31 - 1]))
    if field.is_repeated:
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


@pytest.mark.slow
@ALL
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(data=st.data())
def test_resources_with_any_fields_set(decode: Decode, data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(TABLES[decode]))
    message = type(base)()
    message.CopyFrom(base)
    filled(message, data, depth=5)
    refilled(message, data)
    judge(decode, message.SerializeToString())
