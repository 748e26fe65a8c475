"""Listeners of gRPC servers: our own data plane takes them, and no Envoy is shown them."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.resources.contour_documents import World

from authplane.controlplane.render.dump import dump
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap
from authplane.core.problems import Problems
from authplane.dataplane.config.listeners import ServerListener
from authplane.dataplane.config.read.read_listeners import parse_listener
from authplane.dataplane.config.security import Provider, ServerTls
from authplane.dataplane.filters.calls import Side
from authplane.dataplane.filters.registry import Scope, Trust
from authplane.dataplane.filters.standard_filters import standard_registry
from authplane.xds.bootstrap.credentials import TlsFiles

EXAMPLE = Path(__file__).parents[3] / "examples" / "grpc-policies"
GOLDEN = Path(__file__).parents[2] / "golden" / "gateway"
DOCUMENTS = {
    "the example": [(EXAMPLE / name).read_text(encoding="utf-8") for name in ("backend.yaml", "policy.yaml")],
    "several workloads": [(GOLDEN / "grpc-server" / "in.yaml").read_text(encoding="utf-8")],
    "denied to all": [(GOLDEN / "grpc-server-denied" / "in.yaml").read_text(encoding="utf-8")],
}
PROVIDERS = {"workload": TlsFiles(ca="/ca"), "policy": TlsFiles(ca="/ca")}
SCOPE = Scope(
    side=Side.SERVER, trust=Trust(trusted=True, certificate_providers=PROVIDERS), registry=standard_registry()
)


def read(message: Any) -> ServerListener:
    problems = Problems()
    found = parse_listener(message, SCOPE, problems)
    assert list(problems) == []
    assert isinstance(found, ServerListener)
    return found


@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_our_data_plane_takes_every_listener(documents: list[str]) -> None:
    world = World(documents)
    listeners = [read(message) for message in world.generation.rendered.grpc_listeners]
    assert [each.name for each in listeners] == [each.listener for each in world.graph.grpc_servers]
    assert listeners
    for each in listeners:
        [manager] = each.managers
        assert manager.filters[-1].kind.terminal


def test_clients_show_certificates_of_the_providers_of_the_bootstrap() -> None:
    [message] = World(DOCUMENTS["the example"]).generation.rendered.grpc_listeners
    chain = read(message).default_chain
    assert chain is not None
    own = Provider(instance="workload", certificate="")
    assert chain.tls == ServerTls(identity=own, roots=own, require_client_certificate=True)


def test_no_envoy_is_given_the_listener_of_a_server() -> None:
    rendered = World(DOCUMENTS["several workloads"]).generation.rendered
    assert [each.name for each in static_bootstrap(rendered).static_resources.listeners] == ["gateway/8090"]


def test_the_same_documents_give_the_same_bytes() -> None:
    first, second = (World(DOCUMENTS["the example"]).generation for _ in range(2))
    assert first.snapshot == second.snapshot
    assert dump(first.rendered, show_secrets=False) == dump(second.rendered, show_secrets=False)
