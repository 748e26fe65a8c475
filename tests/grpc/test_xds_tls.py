"""TLS as Listeners and Clusters ask for it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from envoy.config.listener.v3 import listener_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from tests.support import certificates
from tests.support.grpc.control_plane import Control, controlling
from tests.support.grpc.shop_servers import Authority, Cart, call, refusal, serving
from tests.support.grpc.tls_channels import SPIFFE, secured, server_credentials, spiffe_client
from tests.support.grpc.xds_resources import api_listener, cluster, endpoints, ext_authz, listener, manager, packed
from tests.support.grpc.xds_routes import forwarded, routes
from tests.support.grpc.xds_servers import xds_serving

from authplane.dataplane.runtime.channels.thread_channel import FilteredChannel
from authplane.grpc import XdsChannelCredentials, XdsServerCredentials
from authplane.grpc import channel as channel_of


class Mesh(NamedTuple):
    """Certificates in files, for a bootstrap."""

    providers: dict[str, Any]


@pytest.fixture
def mesh(tmp_path: Path) -> Mesh:
    def put(name: str, data: bytes) -> str:
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    ca = put("ca.pem", certificates.authority().certificate)
    providers = {}
    for name, pair in (("server", certificates.server("shop.example")), ("client", spiffe_client())):
        config = {
            "certificate_file": put(f"{name}.crt", pair.certificate),
            "private_key_file": put(f"{name}.key", pair.key.reveal()),
            "ca_certificate_file": ca,
        }
        providers[name] = {"plugin_name": "file_watcher", "config": config}
    return Mesh(providers)


def downstream() -> Any:
    context = tls_pb2.DownstreamTlsContext()
    common = context.common_tls_context
    common.tls_certificate_provider_instance.instance_name = "server"
    common.validation_context.ca_certificate_provider_instance.instance_name = "server"
    context.require_client_certificate.value = True
    return {"name": "tls", "typed_config": packed(context)}


@pytest.fixture
def control() -> Iterator[Control]:
    with controlling() as made:
        yield made


@pytest.mark.slow
@pytest.mark.requirement("EA-21", "EA-22")
def test_a_listener_may_ask_for_mutual_tls_and_stop_asking(
    stack: str, control: Control, cart: Cart, authority: Authority, mesh: Mesh
) -> None:
    bootstrap = control.bootstrap(certificate_providers=mesh.providers)
    with xds_serving(stack) as make:
        server = make(cart, "127.0.0.1:0", XdsServerCredentials(None), xds=bootstrap)
        filters = manager(ext_authz(authority.target))
        control.publish(listener(server.port, filters, transport_socket=downstream()))
        assert server.is_serving()
        with secured(server.port, spiffe_client()) as channel:
            assert call(channel, "unary_unary", b"a")[0] == [b"a"]
        with secured(server.port, None) as channel:
            assert refusal(channel, timeout=1).code() in {
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            }
        (check,) = authority.checks
        assert check.attributes.source.principal == SPIFFE
        assert check.attributes.destination.principal == "shop.example"
        # Plain text from now on: other connections are taken by another server.
        control.publish(listener(server.port, filters))
        control.wait_for_ack(listener_pb2.Listener)
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            assert call(channel, "unary_unary", b"a", wait_for_ready=True)[0] == [b"a"]


def upstream(**names: str) -> Any:
    context = tls_pb2.UpstreamTlsContext()
    common = context.common_tls_context
    common.tls_certificate_provider_instance.instance_name = "client"
    common.validation_context.ca_certificate_provider_instance.instance_name = "client"
    common.validation_context.match_subject_alt_names.add(**names)
    return {"name": "tls", "typed_config": packed(context)}


def test_a_cluster_may_ask_for_tls(control: Control, cart: Cart, mesh: Mesh) -> None:
    bootstrap = control.bootstrap(certificate_providers=mesh.providers)
    credentials = server_credentials(certificates.server("shop.example"), mutual=True)
    with serving("threads") as serve:
        port = serve(cart, credentials=credentials)

        def open_one(**names: str) -> FilteredChannel:
            made = api_listener("shop", manager(inline=routes("inline", forwarded("c"))))
            control.publish(made, cluster("c", transport_socket=upstream(**names)), endpoints("c", (port,)))
            return channel_of("xds:///shop", XdsChannelCredentials(None), xds=bootstrap)

        with open_one(exact="shop.example") as channel:
            assert call(channel, "unary_unary", b"a")[0] == [b"a"]
        with open_one(exact="other.example") as channel:
            assert refusal(channel).code() is grpc.StatusCode.UNAVAILABLE
        with open_one(prefix="shop") as channel:
            assert "cannot check the subject alternative names" in refusal(channel).details()
    assert cart.calls == 1
