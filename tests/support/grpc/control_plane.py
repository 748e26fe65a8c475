"""A control plane that is made of nothing but the messages."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf.message import Message
from tests.support.grpc.xds_resources import TEMPLATE, name_of, packed

PATIENCE = 5.0


class Control:
    """Serves what was published last, and remembers what it was told."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._resources: dict[str, dict[str, Message]] = {}
        self._version = 0
        self._streams: list[queue.SimpleQueue[discovery_pb2.DiscoveryRequest | None]] = []
        self.nacks: list[str] = []
        self.acked: dict[str, str] = {}
        self.target = ""

    def publish(self, *resources: Message) -> None:
        """Serve these and no others."""
        with self._lock:
            self._version += 1
            self._resources = {}
            for each in resources:
                url = f"type.googleapis.com/{each.DESCRIPTOR.full_name}"
                self._resources.setdefault(url, {})[name_of(each)] = each
            streams = tuple(self._streams)
        for stream in streams:
            stream.put(discovery_pb2.DiscoveryRequest())

    def wait_for_nack(self) -> str:
        with self._lock:
            assert self._lock.wait_for(lambda: self.nacks, PATIENCE)
            return self.nacks[-1]

    def wait_for_ack(self, message: type[Message]) -> None:
        """Wait until what was published last of a type has been accepted."""
        url = f"type.googleapis.com/{message.DESCRIPTOR.full_name}"
        with self._lock:
            assert self._lock.wait_for(lambda: self.acked.get(url) == str(self._version), PATIENCE), self.nacks

    def stream(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        inbox: queue.SimpleQueue[discovery_pb2.DiscoveryRequest | None] = queue.SimpleQueue()

        def read() -> None:
            try:
                for each in requests:
                    inbox.put(discovery_pb2.DiscoveryRequest.FromString(each))
            except grpc.RpcError:
                pass
            inbox.put(None)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        context.add_callback(lambda: inbox.put(None))
        with self._lock:
            self._streams.append(inbox)
        wanted: dict[str, tuple[str, ...]] = {}
        sent: dict[tuple[str, tuple[str, ...]], int] = {}
        while (request := inbox.get()) is not None:
            self._note(request)
            if request.type_url:
                wanted[request.type_url] = tuple(sorted(request.resource_names))
            for url, names in wanted.items():
                with self._lock:
                    version, found = self._version, self._resources.get(url, {})
                if sent.get((url, names)) != version and (names or url in found):
                    sent[url, names] = version
                    yield _response(url, version, [found[name] for name in names if name in found])
        with self._lock:
            self._streams.remove(inbox)

    def _note(self, request: discovery_pb2.DiscoveryRequest) -> None:
        with self._lock:
            if request.HasField("error_detail"):
                self.nacks.append(request.error_detail.message)
            elif request.response_nonce:
                self.acked[request.type_url] = request.version_info
            self._lock.notify_all()

    def handler(self) -> grpc.GenericRpcHandler:
        made: Any = grpc.stream_stream_rpc_method_handler(self.stream)
        return grpc.method_handlers_generic_handler(
            "envoy.service.discovery.v3.AggregatedDiscoveryService", {"StreamAggregatedResources": made}
        )

    def bootstrap(self, **more: Any) -> dict[str, Any]:
        server = {
            "server_uri": self.target,
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3", "trusted_xds_server", "fail_on_data_errors"],
        }
        return {
            "xds_servers": [server],
            "node": {"id": "tests"},
            "server_listener_resource_name_template": TEMPLATE,
            **more,
        }


def _response(url: str, version: int, resources: list[Message]) -> bytes:
    return discovery_pb2.DiscoveryResponse(
        version_info=str(version), nonce=f"{url}{version}", type_url=url, resources=[packed(each) for each in resources]
    ).SerializeToString()


@contextmanager
def controlling(control: Control | None = None, address: str = "127.0.0.1:0") -> Iterator[Control]:
    """Run a control plane."""
    control = control or Control()
    with ThreadPoolExecutor(20) as pool:
        server = grpc.server(pool, [control.handler()])
        control.target = f"127.0.0.1:{server.add_insecure_port(address)}"
        server.start()
        try:
            yield control
        finally:
            assert server.stop(0).wait(PATIENCE)
