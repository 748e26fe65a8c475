"""How long Envoy waits for requests to Backends and for their answers."""

from datetime import timedelta
from typing import Final, NamedTuple

import pytest
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2
from tests.support.gateways.contour_gateway import service
from tests.support.gateways.mcp_gateway import backend
from tests.support.resources.contour_documents import World

from authplane.controlplane.render.rendered import render_graph

NEVER: Final = timedelta(0)
MINUTE: Final = timedelta(minutes=1)
GATEWAY: Final = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: authplane
  listeners: [{name: plain, port: 8000, protocol: HTTP}]
"""
TO_SERVICES: Final = "{name: shop, port: 80}"
TO_SHOP: Final = "{group: agentic.networking.x-k8s.io, kind: Backend, name: shop}"
TO_OTHER: Final = "{group: agentic.networking.x-k8s.io, kind: Backend, name: other}"


class Case(NamedTuple):
    timeouts: str = "{}"
    """Of the installation."""
    annotation: str = ""
    """Of the Backend ``shop``."""
    to: str = TO_SHOP
    request: timedelta | None = MINUTE
    """Until a request has arrived; zero is for ever, None what Envoy has by itself."""
    stream: timedelta | None = None
    """What all requests have that say nothing of it."""
    idle: timedelta | None = NEVER
    """Without traffic on this route; None is what all requests have."""


CASES: Final = {
    "by default servers may be silent, and requests have a minute to arrive": Case(),
    "requests to Services alone have no limit": Case(to=TO_SERVICES, request=None, idle=None),
    "a Service beside a Backend waits with it": Case(to=f"{TO_SERVICES}, {TO_SHOP}"),
    "what is set for the installation applies to Backends too": Case(
        "{streamIdleTimeout: 10m, requestTimeout: 5s}",
        request=timedelta(seconds=5),
        stream=timedelta(minutes=10),
        idle=None,
    ),
    "infinity is never": Case("{streamIdleTimeout: infinity, requestTimeout: infinity}", request=NEVER, stream=NEVER,
                              idle=None),
    "a Backend has the last word": Case("{streamIdleTimeout: 10m}", "2h", stream=timedelta(minutes=10),
                                        idle=timedelta(hours=2)),
    "a Backend may never end": Case("{streamIdleTimeout: 10m}", "infinity", stream=timedelta(minutes=10)),
    "of two Backends the more patient counts": Case("{}", "2h", to=f"{TO_SHOP}, {TO_OTHER}"),
    "what is no duration is an error, and the installation decides": Case("{}", "soon", idle=None),
    "zero could mean two things": Case("{}", "0s", idle=None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_envoy_waits_for(case: Case) -> None:
    annotation = f"authplane.dev/idle-timeout: '{case.annotation}'" if case.annotation else ""
    route = f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web}}
spec: {{parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{case.to}]}}]}}
"""
    configuration = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{unprotectedBackends: Allow, contour: {{envoy: {{timeouts: {case.timeouts}}}}}}}
"""
    backends = [backend("shop", annotation), backend("other")]
    services = [service("shop", 1), service("other", 1)]
    generation = World([configuration, GATEWAY, route, *backends, *services]).generation
    wrong = [each.problem for each in generation.findings if each.problem.severity.value == "error"]
    assert [(each.reason, each.path[-1]) for each in wrong] == (
        [("AnnotationInvalid", "authplane.dev/idle-timeout")] if case.annotation in {"soon", "0s"} else []
    )
    rendered = render_graph(generation.built.graph)
    [listener], [table] = rendered.listeners, rendered.routes
    manager = hcm_pb2.HttpConnectionManager()
    listener.filter_chains[0].filters[0].typed_config.Unpack(manager)
    said = (*manager.ListFields(), *table.virtual_hosts[0].routes[0].route.ListFields())
    names = ("request_timeout", "stream_idle_timeout", "idle_timeout")
    found = {field.name: value.ToTimedelta() for field, value in said if field.name in names}
    assert [found.get(each) for each in names] == [case.request, case.stream, case.idle]
