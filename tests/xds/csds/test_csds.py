"""Messages of the client status discovery service."""

import pytest
from envoy.admin.v3 import config_dump_shared_pb2 as admin_pb
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.core.v3.base_pb2 import DataSource, HeaderValue, TransportSocket
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.http.ext_authz.v3.ext_authz_pb2 import ExtAuthz
from envoy.extensions.filters.network.http_connection_manager.v3.http_connection_manager_pb2 import (
    HttpConnectionManager,
)
from envoy.extensions.transport_sockets.tls.v3.secret_pb2 import GenericSecret, Secret
from envoy.extensions.transport_sockets.tls.v3.tls_pb2 import UpstreamTlsContext
from envoy.service.status.v3 import csds_pb2 as pb
from google.protobuf.any_pb2 import Any
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from xds.type.v3.typed_struct_pb2 import TypedStruct

from authplane.xds.bootstrap.credentials import Insecure
from authplane.xds.bootstrap.xds_bootstrap import Node, XdsServer
from authplane.xds.client.resource_cache import ClientDump, Dumped, Held, Key, Setback, Standing
from authplane.xds.client.watch_events import Fault, Trouble
from authplane.xds.csds.wire import REDACTED, StatusRequest, parse_status_request, redact, render_status
from authplane.xds.server.served_types import TypeUrl

SECRET = "hunter2"
SERVER = XdsServer(uri="one", channel_creds=Insecure())
KEY = Key(TypeUrl.LISTENER.value, "a")


def packed(message: Message) -> Any:
    made = Any()
    made.Pack(message)
    return made


def cluster_with_a_key() -> Message:
    context = UpstreamTlsContext()
    certificate = context.common_tls_context.tls_certificates.add()
    certificate.certificate_chain.inline_string = "public"
    certificate.private_key.inline_bytes = SECRET.encode()
    certificate.password.inline_string = SECRET
    return Cluster(name="c", transport_socket=TransportSocket(name="tls", typed_config=packed(context)))


def listener_with_a_token() -> Message:
    filter_config = ExtAuthz()
    google = filter_config.grpc_service.google_grpc
    google.target_uri = "dns:///authz"
    google.call_credentials.add(access_token=SECRET)
    google.channel_credentials.ssl_credentials.private_key.inline_string = SECRET
    filter_config.grpc_service.initial_metadata.append(HeaderValue(key="authorization", value=SECRET))
    filter_config.grpc_service.initial_metadata.append(HeaderValue(key="more", raw_value=SECRET.encode()))
    manager = HttpConnectionManager(stat_prefix="kept")
    manager.http_filters.add(name="authz", typed_config=packed(filter_config))
    message = Listener(name="l")
    message.api_listener.api_listener.CopyFrom(packed(manager))
    return message


def listener_with_loose_fields() -> Message:
    struct = TypedStruct(type_url="type.googleapis.com/some.Filter")
    struct.value.update({"password": SECRET})
    message = Listener(name="l")
    message.metadata.filter_metadata["some"].update({"token": SECRET})
    message.filter_chains.add().filters.add(name="f", typed_config=packed(struct))
    unknown = Any(type_url="type.googleapis.com/some.Unknown", value=SECRET.encode())
    message.filter_chains.add().filters.add(name="g", typed_config=unknown)
    return message


SECRETS = {
    "a private key in a cluster": cluster_with_a_key(),
    "tokens and headers for a service": listener_with_a_token(),
    "fields of any kind, and messages that nobody knows": listener_with_loose_fields(),
    "a secret": Secret(name="s", generic_secret=GenericSecret(secret=DataSource(inline_string=SECRET))),
}


@pytest.mark.requirement("X12")
@pytest.mark.parametrize("message", SECRETS.values(), ids=SECRETS.keys())
def test_no_secret_is_left(message: Message) -> None:
    assert SECRET.encode() in message.SerializeToString()
    assert SECRET.encode() not in redact(packed(message)).SerializeToString()


@pytest.mark.requirement("X12")
def test_what_is_no_secret_stays_and_what_is_has_a_mark() -> None:
    want = cluster_with_a_key()
    context = UpstreamTlsContext()
    certificate = context.common_tls_context.tls_certificates.add()
    certificate.certificate_chain.inline_string = "public"
    certificate.private_key.inline_string = REDACTED
    certificate.password.inline_string = REDACTED
    assert isinstance(want, Cluster)
    want.transport_socket.typed_config.Pack(context)
    assert redact(packed(cluster_with_a_key())) == packed(want)


@pytest.mark.requirement("X12")
def test_fields_that_are_newer_than_we_are_do_not_show() -> None:
    body = Listener(name="a").SerializeToString() + b"\xfa\x7f\x07" + SECRET.encode()
    message = Any(type_url=KEY.type_url, value=body)
    assert redact(message) == packed(Listener(name="a"))


@pytest.mark.requirement("X12")
def test_messages_within_messages_within_messages_are_cut_off() -> None:
    message = packed(Listener(name="a"))
    for _ in range(200):
        message = packed(message)
    assert len(redact(message).SerializeToString()) < len(message.SerializeToString())


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_bytes_of_any_kind_are_redacted(body: bytes) -> None:
    redact(Any(type_url=KEY.type_url, value=body))


def held(body: bytes) -> Held:
    return Held(value="v", body=body, version="v1", source=SERVER, since=1.5)


SETBACK = Setback(fault=Fault(Trouble.INVALID, "is bad"), version="v2", at=2.25)
STANDINGS = {
    Standing.REQUESTED: admin_pb.REQUESTED,
    Standing.DOES_NOT_EXIST: admin_pb.DOES_NOT_EXIST,
    Standing.ACKED: admin_pb.ACKED,
    Standing.NACKED: admin_pb.NACKED,
    Standing.RECEIVED_ERROR: admin_pb.RECEIVED_ERROR,
    Standing.TIMEOUT: admin_pb.TIMEOUT,
}


@pytest.mark.parametrize("standing", Standing)
@pytest.mark.parametrize("contents", [False, True])
def test_a_resource_is_told_with_its_standing_its_content_and_its_fault(standing: Standing, contents: bool) -> None:
    body = Listener(name="a").SerializeToString()
    resource = Dumped(key=KEY, standing=standing, held=held(body), setback=SETBACK)
    node = Node(id="n", metadata='{"password":"hunter2"}')
    dump = ClientDump(node=node, scope="#server", resources=(resource,), epoch=1000.0)
    got = pb.ClientStatusResponse.FromString(render_status([dump], contents=contents))
    want = pb.ClientStatusResponse()
    config = want.config.add(client_scope="#server")
    config.node.id, config.node.user_agent_name = "n", "authplane"
    config.node.client_features.extend(["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"])
    entry = config.generic_xds_configs.add(
        type_url=KEY.type_url, name="a", version_info="v1", client_status=STANDINGS[standing]
    )
    entry.last_updated.FromMilliseconds(1_001_500)
    if contents:
        entry.xds_config.Pack(Listener(name="a"))
    entry.error_state.details, entry.error_state.version_info = "is bad", "v2"
    entry.error_state.last_update_attempt.FromMilliseconds(1_002_250)
    assert got == want


def test_a_resource_of_which_nothing_is_known_has_a_name_and_a_standing() -> None:
    resource = Dumped(key=KEY, standing=Standing.REQUESTED, held=None, setback=None)
    dump = ClientDump(node=Node(), scope="", resources=(resource,), epoch=0.0)
    (config,) = pb.ClientStatusResponse.FromString(render_status([dump], contents=True)).config
    assert list(config.generic_xds_configs) == [
        pb.ClientConfig.GenericXdsConfig(type_url=KEY.type_url, name="a", client_status=admin_pb.REQUESTED)
    ]


def test_parse_status_request() -> None:
    matching = pb.ClientStatusRequest(exclude_resource_contents=True)
    matching.node_matchers.add()
    assert parse_status_request(matching.SerializeToString()) == StatusRequest(
        matches_nodes=True, without_contents=True
    )
    assert parse_status_request(b"") == StatusRequest(matches_nodes=False, without_contents=False)
    assert parse_status_request(b"\xff") is None
