"""Who a program says it is to the servers of its configuration."""

import json

import pytest
from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format

from authplane.core.feature_flags import FeatureFlags
from authplane.xds.bootstrap.xds_bootstrap import Bootstrap, Node, parse_bootstrap
from authplane.xds.client.wire import render_node

OURS = {
    "userAgentName": "authplane",
    "userAgentVersion": "1.2",
    "clientFeatures": ["envoy.lb.does_not_support_overprovisioning", "xds.config.resource-in-sotw"],
}


@pytest.mark.requirement("BS-8")
def test_servers_are_told_what_the_bootstrap_says_and_what_we_are() -> None:
    said = {
        "id": "n1",
        "cluster": "shop",
        "locality": {"region": "r", "zone": "z", "subZone": "s"},
        "metadata": {"number": 1.5, "list": [True, None, "é\\"], "object": {"": {}}},
    }
    written = said | {"locality": {"region": "r", "zone": "z", "sub_zone": "s"}, "user_agent_name": "somebody else"}
    server = {"server_uri": "a:1", "channel_creds": [{"type": "insecure"}]}
    made = parse_bootstrap(json.dumps({"xds_servers": [server], "node": written}).encode(), FeatureFlags())
    assert isinstance(made, Bootstrap)
    assert json_format.MessageToDict(render_node(made.node, "1.2")) == said | OURS


@pytest.mark.requirement("BS-8")
def test_without_a_node_only_we_are_named() -> None:
    message: base_pb2.Node = render_node(Node(), "1.2")
    assert json_format.MessageToDict(message) == OURS
