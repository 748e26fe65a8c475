"""How long and how many things may be that Envoy limits: a table with one too many would be refused as a whole."""

from collections.abc import Callable

import pytest
from tests.support.envoy.validation import validate
from tests.support.resources.contour_documents import ECHO, World
from tests.support.resources.graph_views import plain_hosts

from authplane.controlplane.render.dump import json_text
from authplane.controlplane.render.envoy_bootstrap import static_bootstrap

TO_ECHO = "services: [{name: echo, port: 80}]"
HEADERS = "RequestHeadersPolicyInvalid"
LIMITS: dict[str, tuple[Callable[[int], str], int, str]] = {
    "the name of a parameter": (
        lambda count: f"{{{TO_ECHO}, conditions: [{{queryParameter: {{name: {'q' * count}, present: true}}}}]}}",
        1024,
        "QueryParameterMatchConditionsNotValid",
    ),
    "the name of a parameter in bytes": (
        lambda count: f"{{{TO_ECHO}, conditions: [{{queryParameter: {{name: {'é' * count}, present: true}}}}]}}",
        512,
        "QueryParameterMatchConditionsNotValid",
    ),
    "the name of a header": (lambda count: setting(f"{{name: {'x' * count}, value: a}}"), 16_384, HEADERS),
    "the value of a header": (lambda count: setting(f"{{name: x, value: {'a' * count}}}"), 16_384, HEADERS),
    "the value of a header, of percent signs": (
        lambda count: setting(f"{{name: x, value: a{'%' * count}}}"),
        8191,
        HEADERS,
    ),
    "headers of a route": (
        lambda count: setting(*(f"{{name: x-{number}, value: a}}" for number in range(count))),
        1000,
        HEADERS,
    ),
    "the host": (
        lambda count: (
            f"{{services: [{{name: echo, port: 80, protocol: tls}}], requestHeadersPolicy: "
            f"{{set: [{{name: host, value: '{'a' * count}:8443'}}]}}}}"
        ),
        253,
        HEADERS,
    ),
}


def setting(*headers: str) -> str:
    return f"{{{TO_ECHO}, requestHeadersPolicy: {{set: [{', '.join(headers)}]}}}}"


def proxy(number: int, route: str) -> str:
    name = f"p{number}"
    spec = f"{{virtualhost: {{fqdn: {name}.example}}, routes: [{route}]}}"
    return f"{{apiVersion: projectcontour.io/v1, kind: HTTPProxy, metadata: {{name: {name}}}, spec: {spec}}}"


@pytest.mark.real
@pytest.mark.requirement("X15")
async def test_envoy_takes_the_most_that_we_take() -> None:
    routes = [route(most) for route, most, _ in LIMITS.values()]
    world = World([ECHO, *(proxy(number, route) for number, route in enumerate(routes))])
    assert world.problems("HTTPProxy") == []
    verdict = await validate(json_text(static_bootstrap(world.generation.rendered)))
    assert verdict.ok, verdict.output


@pytest.mark.parametrize(("route", "most", "reason"), LIMITS.values(), ids=LIMITS.keys())
def test_one_more_costs_its_own_host_only(route: Callable[[int], str], most: int, reason: str) -> None:
    world = World([ECHO, proxy(0, route(most + 1)), proxy(1, f"{{{TO_ECHO}}}")])
    assert [found for found, _ in world.problems("HTTPProxy")] == [reason]
    assert [host.name for host in plain_hosts(world.graph)] == ["p1.example"]
