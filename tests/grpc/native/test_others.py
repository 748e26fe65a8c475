"""Servers of other makers leave out what only ours understand, and go on with what holds for all."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.route.v3 import route_components_pb2
from envoy.extensions.filters.http.rbac.v3 import rbac_pb2 as filter_pb
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from google.protobuf import any_pb2
from tests.support.grpc.judged_servers import judging
from tests.support.grpc.peers import GRPC_GO, GRPCIO, peer_argv
from tests.support.grpc.shop_servers import PATIENCE
from tests.support.grpc.xds_resources import packed
from tests.support.resources.contour_documents import World

EXAMPLE = Path(__file__).parents[3] / "examples" / "grpc-policies"


def override() -> any_pb2.Any:
    """Return the override that the example's server is sent."""
    documents = [(EXAMPLE / name).read_text(encoding="utf-8") for name in ("backend.yaml", "policy.yaml")]
    [listener] = World(documents).generation.rendered.grpc_listeners
    [network] = listener.default_filter_chain.filters
    manager = hcm_pb2.HttpConnectionManager.FromString(network.typed_config.value)
    found = manager.route_config.virtual_hosts[0].routes[0].typed_per_filter_config["composite"]
    assert found.TypeName() == route_components_pb2.FilterConfig.DESCRIPTOR.full_name
    return found


def host() -> route_components_pb2.VirtualHost:
    """Return a route with the override for a filter that is there, and one on which that filter refuses."""
    made = route_components_pb2.VirtualHost(name="all", domains=["*"])
    closed = filter_pb.RBACPerRoute()
    closed.rbac.rules.SetInParent()
    for path, config in (("/shop.Orders/Get", override()), ("/shop.Orders/Put", packed(closed))):
        route = made.routes.add()
        route.match.path = path
        route.non_forwarding_action.SetInParent()
        route.typed_per_filter_config["rbac"].CopyFrom(config)
    return made


@pytest.mark.real
@pytest.mark.parametrize("peer", [GRPCIO, GRPC_GO])
def test_a_server_that_does_not_know_the_override_serves_without_it(
    peer: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with judging(peer_argv(peer, request.config), [host()], None, tmp_path) as ports:
        options = (("grpc.initial_reconnect_backoff_ms", 100),)
        with grpc.insecure_channel(f"127.0.0.1:{ports['theirs']}", options) as channel:
            grpc.channel_ready_future(channel).result(20)
            codes = []
            for path in ("/shop.Orders/Get", "/shop.Orders/Put"):
                say: Any = channel.unary_unary(path)
                codes.append(say.with_call(b"", timeout=PATIENCE)[1].code() if "Get" in path else refused(say))
        assert codes == [grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED]


def refused(say: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as raised:
        say(b"", timeout=PATIENCE)
    error: Any = raised.value
    code: grpc.StatusCode = error.code()
    return code
