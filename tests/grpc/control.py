"""A control plane that is made of nothing but the messages, and resources for it."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import address_pb2
from envoy.config.endpoint.v3 import endpoint_components_pb2, endpoint_pb2
from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.http.ext_authz.v3 import ext_authz_pb2
from envoy.extensions.filters.http.router.v3 import router_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2
from google.protobuf.message import Message

PATIENCE = 5.0
TEMPLATE = "server/%s"
_INSECURE = "type.googleapis.com/envoy.extensions.grpc_service.channel_credentials.insecure.v3.InsecureCredentials"


def packed(message: Message) -> any_pb2.Any:
    made = any_pb2.Any()
    made.Pack(message)
    return made


def name_of(resource: Message) -> str:
    return str(getattr(resource, "cluster_name", "") or getattr(resource, "name", ""))


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


# --- Resources


def http_filter(name: str, config: Message, **more: Any) -> hcm_pb2.HttpFilter:
    return hcm_pb2.HttpFilter(name=name, typed_config=packed(config), **more)


ROUTER = http_filter("router", router_pb2.Router())


def ext_authz(target: str, **more: Any) -> hcm_pb2.HttpFilter:
    """Return the filter, with a service in plain text."""
    config = ext_authz_pb2.ExtAuthz(**more)
    google = config.grpc_service.google_grpc
    google.target_uri = target
    google.channel_credentials_plugin.add(type_url=_INSECURE)
    config.grpc_service.timeout.seconds = 1
    return http_filter("authz", config)


def served(domain: str = "*", prefix: str = "/", **more: Any) -> route_components_pb2.VirtualHost:
    """Return a virtual host whose calls are answered by the server."""
    route = route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(prefix=prefix),
        non_forwarding_action=route_components_pb2.NonForwardingAction(),
        **more,
    )
    return route_components_pb2.VirtualHost(name=domain, domains=[domain], routes=[route])


def forwarded(cluster: str, domain: str = "*", **more: Any) -> route_components_pb2.VirtualHost:
    """Return a virtual host whose calls go to a cluster."""
    route = route_components_pb2.Route(
        match=route_components_pb2.RouteMatch(prefix="/"),
        route=route_components_pb2.RouteAction(cluster=cluster),
        **more,
    )
    return route_components_pb2.VirtualHost(name=domain, domains=[domain], routes=[route])


def routes(name: str, *hosts: route_components_pb2.VirtualHost) -> route_pb2.RouteConfiguration:
    return route_pb2.RouteConfiguration(name=name, virtual_hosts=hosts)


def manager(
    *filters: hcm_pb2.HttpFilter, inline: route_pb2.RouteConfiguration | None = None, rds: str = ""
) -> hcm_pb2.HttpConnectionManager:
    made = hcm_pb2.HttpConnectionManager(http_filters=[*filters, ROUTER])
    if rds:
        made.rds.route_config_name = rds
        made.rds.config_source.ads.SetInParent()
    else:
        made.route_config.CopyFrom(inline if inline is not None else routes("inline", served()))
    return made


def listener(
    port: int, made: hcm_pb2.HttpConnectionManager, host: str = "127.0.0.1", **chain: Any
) -> listener_pb2.Listener:
    """Return the Listener of a server."""
    network = listener_components_pb2.Filter(name="hcm", typed_config=packed(made))
    return listener_pb2.Listener(
        name=TEMPLATE % f"{host}:{port}",
        address=_address(host, port),
        filter_chains=[listener_components_pb2.FilterChain(filters=[network], **chain)],
    )


def api_listener(name: str, made: hcm_pb2.HttpConnectionManager) -> listener_pb2.Listener:
    """Return the Listener of a client."""
    resource = listener_pb2.Listener(name=name)
    resource.api_listener.api_listener.CopyFrom(packed(made))
    return resource


def cluster(name: str, **more: Any) -> cluster_pb2.Cluster:
    made = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS, **more)
    made.eds_cluster_config.eds_config.ads.SetInParent()
    return made


def endpoints(name: str, *priorities: tuple[int, ...]) -> endpoint_pb2.ClusterLoadAssignment:
    """Return endpoints by their ports; those of one tuple are at one priority."""
    made = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    for priority, ports in enumerate(priorities):
        locality = made.endpoints.add(priority=priority)
        locality.load_balancing_weight.value = 1
        locality.locality.region = f"r{priority}"
        for port in ports:
            endpoint = endpoint_components_pb2.Endpoint(address=_address("127.0.0.1", port))
            locality.lb_endpoints.add(endpoint=endpoint)
    return made


def _address(host: str, port: int) -> address_pb2.Address:
    return address_pb2.Address(socket_address=address_pb2.SocketAddress(address=host, port_value=port))
