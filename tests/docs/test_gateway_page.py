"""The resources of the page about Gateways do what it says."""

from tests.support.certificates import authority, indented
from tests.support.pages import ROOT, blocks
from tests.support.resources.contour_documents import World
from tests.support.resources.graph_views import forwards_on, hosts_on

from authplane.controlplane.graph.model.port_model import Address
from authplane.controlplane.graph.model.upstreams import VerifiedTls

ALONE, WITH_GATEWAY, _CLIENT_CAS, OVER_TLS = [
    block.text for block in blocks(ROOT / "docs" / "how-to" / "serve-mcp-servers.md") if block.language == "yaml"
]


def test_backends_alone_are_served_on_this_machine() -> None:
    world = World([ALONE])
    [port] = world.graph.gateways
    assert (world.generation.findings, port.where) == ((), Address("127.0.0.1", 8090))
    [forward] = forwards_on(port)
    assert [target.cluster for target in forward.targets] == ["backend/Backend/default/weather"]


def test_a_gateway_takes_their_place() -> None:
    world = World([ALONE, WITH_GATEWAY])
    [port] = world.graph.gateways
    assert (world.generation.findings, port.where) == ((), Address("0.0.0.0", 8000))
    assert [host.name for host in hosts_on(port)] == ["*.mcp.example", "tools.mcp.example"]


def test_a_policy_has_a_service_reached_over_tls() -> None:
    ca = f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: internal-ca}}
data:
  ca.crt: |
{indented(authority().certificate)}
"""
    alone = ALONE.replace("url: http://127.0.0.1:3001/mcp", "serviceName: weather\n    port: 3001")
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: weather}\nspec: {ports: [{port: 3001}]}"
    world = World([alone, service, OVER_TLS, ca])
    assert world.generation.findings == ()
    [cluster] = [each for each in world.graph.clusters if each.name.startswith("backend/")]
    host = "weather.internal.example"
    assert cluster.tls == VerifiedTls(ca=authority().certificate, subject_names=(host,), server_name=host)
