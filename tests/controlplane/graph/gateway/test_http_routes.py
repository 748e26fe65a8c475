"""What an HTTPRoute that is refused comes to: it is not served, and every parent's condition says why."""

import pytest
from tests.support.resources.contour_documents import ECHO, World
from tests.support.resources.graph_views import hosts_on

GATEWAY = """
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {listeners: [{name: http, port: 8000, protocol: HTTP}]}
"""
GOOD = """
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: good}
spec:
  parentRefs: [{name: edge}]
  hostnames: [good.example]
  rules: [{backendRefs: [{name: echo, port: 80}]}]
"""


def made_of(bad: str) -> World:
    return World([ECHO, GATEWAY, GOOD, GOOD.replace("name: good}", "name: bad}").replace("good.example", bad)])


def require_refused(made: World, message: str) -> None:
    """Require that ``bad`` is not served, that ``good`` is, and that the status of ``bad`` says why."""
    [port] = made.graph.gateways
    assert {host.name: {each.name.partition("#")[0] for each in host.routes} for host in hosts_on(port)} == {
        "*": set(),
        "good.example": {"default/good"},
    }
    assert ("UnsupportedValue", message) in made.problems("HTTPRoute", "bad")
    [parent] = made.status("HTTPRoute", "bad").parents
    accepted, _, programmed = parent.conditions
    assert (accepted.type, accepted.status, accepted.reason) == ("Accepted", "False", "UnsupportedValue")
    assert accepted.message == message
    assert (programmed.status, programmed.reason) == ("False", "NotAttached")


HOSTNAMES = {
    "'*.*.x'": "'*.*.x' is not a DNS name. Use one such as 'a.example' or '*.example'.",
    "'#x'": "'#x' is not a DNS name. Use one such as 'a.example' or '*.example'.",
    "1.2.3.4": "'1.2.3.4' is an IP address. Use a DNS name.",
    "'*'": "'*' is not a DNS name. Use one such as 'a.example' or '*.example'.",
    "a.*.x": "'a.*.x' is not a DNS name. Use one such as 'a.example' or '*.example'.",
    "a.example, 'b c'": "'b c' is not a DNS name. Use one such as 'a.example' or '*.example'.",
}


@pytest.mark.parametrize(("hostnames", "message"), HOSTNAMES.items())
def test_a_route_with_a_hostname_that_is_none_is_not_served_and_not_accepted(hostnames: str, message: str) -> None:
    require_refused(made_of(hostnames), message)


FILTERS = {
    "CORS": "cors: {allowOrigins: ['*']}",
    "ExtensionRef": "extensionRef: {group: a.example, kind: Limit, name: x}",
    "ExternalAuth": "externalAuth: {protocol: GRPC, backendRef: {name: echo, port: 80}}",
    "RequestHeaderModifier": "requestHeaderModifier: {set: [{name: a, value: b}]}",
    "RequestMirror": "requestMirror: {backendRef: {name: echo, port: 80}}",
    "RequestRedirect": "requestRedirect: {scheme: https}",
    "ResponseHeaderModifier": "responseHeaderModifier: {remove: [a]}",
    "URLRewrite": "urlRewrite: {hostname: a.example}, requestHeaderModifier: {remove: [a]}",
}


@pytest.mark.parametrize(("kind", "field"), FILTERS.items())
def test_a_route_with_a_filter_that_is_not_supported_is_not_accepted(kind: str, field: str) -> None:
    rule = f"filters: [{{type: {kind}, {field}}}], backendRefs"
    made = World([ECHO, GATEWAY, GOOD, GOOD.replace("name: good}", "name: bad}").replace("backendRefs", rule)])
    message = (
        f"Filter {kind} is not supported, so Envoy does not serve the route. Remove the filter, or use only URLRewrite."
    )
    require_refused(made, message)


def test_a_route_with_filters_of_a_backend_is_not_accepted() -> None:
    filtered = "port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {remove: [a]}}]"
    made = World([ECHO, GATEWAY, GOOD, GOOD.replace("name: good}", "name: bad}").replace("port: 80", filtered)])
    require_refused(made, "Filters of a backend are not supported. Remove them.")
