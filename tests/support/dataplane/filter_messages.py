"""HTTP filters of a chain, as messages."""

from typing import Any

from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb
from google.protobuf import any_pb2
from google.protobuf.message import Message


def packed(message: Message) -> any_pb2.Any:
    made = any_pb2.Any()
    made.Pack(message)
    return made


def http_filter(name: str, message: Message | any_pb2.Any, **kwargs: Any) -> hcm_pb.HttpFilter:
    config = message if isinstance(message, any_pb2.Any) else packed(message)
    return hcm_pb.HttpFilter(name=name, typed_config=config, **kwargs)


def router(name: str = "router") -> hcm_pb.HttpFilter:
    return http_filter(name, router_pb2.Router())
