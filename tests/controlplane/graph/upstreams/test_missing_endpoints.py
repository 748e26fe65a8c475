"""A Service that gets requests and has no ready endpoint: a warning, and what is served stays as it is."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.support.eventually import START_LIMIT
from tests.support.policies.documents import BACKEND, GATEWAY, policy, rule
from tests.support.resources.contour_documents import AUTH, ECHO, EXTENSION, PROXY, World, whole

from authplane.controlplane.graph.model.upstreams import ServiceCluster
from authplane.controlplane.serving.runtime.control_plane import Control, ControlSettings, Told
from authplane.runtime.servers.listen import UnixAddress
from authplane.sources.runtime.read_folder import Folder

NOT_READY = ECHO.replace("- addresses: [10.0.0.1]", "- addresses: [10.0.0.1]\n  conditions: {ready: false}")
SERVICE = ECHO.split("---", maxsplit=1)[0]
ROUTE = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: echo, port: 80}]}]
"""
SHOP = ECHO.replace("echo", "shop")

WRONG = 'Service "default/echo" has no ready endpoint for port 80, so Envoy cannot send requests to it.'
START = "Start the program behind it, or correct endpoints[] of its EndpointSlices."
ADD = 'Add an EndpointSlice with the label "kubernetes.io/service-name: echo".'
NAME = 'Add a TCP port with the name "http" to its EndpointSlices.'


class Case(NamedTuple):
    kind: str
    documents: dict[str, str]
    want: str = ""


def contour(**changed: str) -> dict[str, str]:
    return {**whole(), **changed}


def gateway(echo: str, route: str = ROUTE) -> dict[str, str]:
    return {"gateway": GATEWAY, "route": route, "echo": echo}


def backend(shop: str) -> dict[str, str]:
    return {"backend": BACKEND, "shop": shop, "policy": policy(rule())}


CASES = {
    "a route of an HTTPProxy, no endpoint is ready": Case("HTTPProxy", contour(echo=NOT_READY), f"{WRONG} {START}"),
    "a route of an HTTPProxy, no EndpointSlice": Case("HTTPProxy", contour(echo=SERVICE), f"{WRONG} {ADD}"),
    "a route of an HTTPProxy, the port has another name": Case(
        "HTTPProxy",
        contour(echo=ECHO.replace("{name: http, port: 8080}", "{name: web, port: 8080}")),
        f"{WRONG} {NAME}",
    ),
    "a route of an HTTPRoute": Case("HTTPRoute", gateway(NOT_READY), f"{WRONG} {START}"),
    "a Backend": Case("Backend", backend(NOT_READY.replace("echo", "shop")), f"{WRONG} {START}"),
    "an ExtensionService": Case("ExtensionService", contour(auth=AUTH.split("---")[0]), f"{WRONG} {ADD}"),
    "an endpoint is ready": Case("HTTPProxy", contour()),
    "a service of weight 0 in an HTTPProxy": Case(
        "HTTPProxy",
        contour(
            proxy=PROXY.replace(
                "    - {name: echo, port: 80}",
                "    - {name: echo, port: 80, weight: 0}\n    - {name: auth, port: 9443, weight: 1}",
            ),
            echo=SERVICE,
        ),
    ),
    "a service of weight 0 in an HTTPRoute": Case(
        "HTTPRoute", gateway(NOT_READY, ROUTE.replace("port: 80}", "port: 80, weight: 0}"))
    ),
    "a service of weight 0 in an ExtensionService": Case(
        "ExtensionService",
        contour(
            extension=EXTENSION.replace(
                "  - {name: auth, port: 9443}", "  - {name: auth, port: 9443, weight: 1}\n  - {name: echo, port: 80}"
            ),
            echo=SERVICE,
        ),
    ),
    "a Backend whose Service is looked up by its name": Case("Backend", backend(SHOP.split("---", maxsplit=1)[0])),
    "a name outside": Case(
        "HTTPProxy",
        contour(
            echo="""
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: ExternalName, externalName: echo.example}
---
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {contour: {enableExternalNameService: true}}
"""
        ),
    ),
}


@pytest.mark.requirement("O03")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_service_without_endpoints_is_a_warning(case: Case) -> None:
    made = World(case.documents.values())
    want = case.want
    if case.kind == "ExtensionService":
        want = want.replace("echo", "auth").replace("port 80", "port 9443")
    if case.kind == "Backend":
        want = want.replace("echo", "shop")
    assert made.problems(case.kind) == []
    assert made.warnings(case.kind) == ([("NoReadyEndpoints", want)] if want else [])


def test_a_route_to_nothing_stays_a_route() -> None:
    there, gone = World(contour().values()), World(contour(echo=NOT_READY).values())
    assert [port.where for port in there.graph.proxies] == [port.where for port in gone.graph.proxies]
    assert "service/default/echo/80" in [each.name for each in gone.graph.clusters if isinstance(each, ServiceCluster)]


def test_the_status_of_a_contour_kind_lists_the_warning() -> None:
    [valid, *_] = World(contour(echo=SERVICE).values()).status("HTTPProxy", "web").conditions
    assert (valid.status, valid.reason, valid.errors) == ("True", "Valid", ())
    assert [(each.type, each.reason, each.message) for each in valid.warnings] == [
        ("ServiceError", "NoReadyEndpoints", f"{WRONG} {ADD}")
    ]


def test_conditions_of_the_gateway_api_stay_true_and_say_it_in_their_message() -> None:
    [parent] = World(gateway(NOT_READY).values()).status("HTTPRoute", "web").parents
    [resolved] = [each for each in parent.conditions if each.type == "ResolvedRefs"]
    assert (resolved.status, resolved.reason, resolved.warnings) == ("True", "ResolvedRefs", ())
    assert resolved.message == f"spec.rules[0].backendRefs[0]: {WRONG} {START}"
    shop = World(backend(NOT_READY.replace("echo", "shop")).values())
    [found] = [each for each in shop.status("Backend", "shop").conditions if each.type == "ResolvedRefs"]
    assert (found.status, found.message) == ("True", f"spec.mcp.serviceName: {WRONG} {START}".replace("echo", "shop"))


async def test_a_control_plane_says_it_when_the_endpoints_go(tmp_path: Path) -> None:
    for name, text in contour().items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    said: list[Told] = []
    warned = asyncio.Event()

    def tell(event: Told) -> None:
        said.append(event)
        if any(each.problem.reason == "NoReadyEndpoints" for each in getattr(event, "appeared", ())):
            warned.set()

    plane, settings = Control(Folder(tmp_path), tell), ControlSettings(address=UnixAddress(path=str(tmp_path / "xds")))
    async with plane.serve(settings), asyncio.TaskGroup() as tasks:
        following = tasks.create_task(plane.follow(settings))
        assert not warned.is_set()
        (tmp_path / "echo.yaml").write_text(SERVICE, encoding="utf-8")
        async with asyncio.timeout(START_LIMIT):
            await warned.wait()
        following.cancel()
    [warning] = [each.problem.message for event in said for each in getattr(event, "appeared", ())]
    assert warning == f"{WRONG} {ADD}"
