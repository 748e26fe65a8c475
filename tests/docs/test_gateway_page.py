"""The resources of the page about Gateways do what it says."""

from tests.docs.pages import ROOT, blocks
from tests.support.world import World

from authplane.graph.gateway_api import gateway_hosts, splits
from authplane.graph.model import Address

ALONE, WITH_GATEWAY = [block.text for block in blocks(ROOT / "docs" / "gateway.md") if block.language == "yaml"]


def test_backends_alone_are_served_on_this_machine() -> None:
    world = World([ALONE])
    [port] = world.graph.gateways
    assert (world.generation.findings, port.where) == ((), Address("127.0.0.1", 8090))
    [split] = splits(gateway_hosts(port))
    assert [share.cluster for share in split.shares] == ["backend/Backend/default/weather"]


def test_a_gateway_takes_their_place() -> None:
    world = World([ALONE, WITH_GATEWAY])
    [port] = world.graph.gateways
    assert (world.generation.findings, port.where) == ((), Address("0.0.0.0", 8000))
    assert [host.name for host in gateway_hosts(port)] == ["*.mcp.example", "tools.mcp.example"]
