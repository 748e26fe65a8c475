"""Which objects of a cluster are read: those that something names, and those of our classes."""

from typing import Any

import pytest

from authplane.controlplane.serving.generation import build_generation
from authplane.core.names import ObjectName, Ref
from authplane.resources.loaded_resources import Loaded
from authplane.sources.document_versions import Library
from authplane.sources.kubernetes.api_kinds import api_kinds
from authplane.sources.kubernetes.cluster_objects import ClusterObjects
from authplane.sources.kubernetes.forbidden_kinds import REASON, Withheld, withhold
from authplane.sources.kubernetes.object_classes import GATEWAY_CLASSES
from authplane.sources.kubernetes.object_documents import object_source, words_in
from authplane.sources.kubernetes.recent_changes import RecentChanges
from authplane.sources.kubernetes.reflector_steps import Gone, Put

KINDS = {each.kind: each for each in api_kinds()}
API = {"HTTPProxy": "projectcontour.io/v1", "Gateway": "gateway.networking.k8s.io/v1"}
API |= {"HTTPRoute": "gateway.networking.k8s.io/v1", "ContourConfiguration": "projectcontour.io/v1alpha1"}


class World:
    """A cluster and the library of it."""

    def __init__(self) -> None:
        self.library = Library(again=object_source, at_once=False)
        self.objects = ClusterObjects(self.library)

    def put(self, kind: str, name: str, **fields: Any) -> str | None:
        meta = {"name": name, "namespace": "a", "resourceVersion": "1", "managedFields": [{}], **fields.pop("meta", {})}
        thing = {"apiVersion": API.get(kind, "v1"), "kind": kind, "metadata": meta, **fields}
        file = self.objects.take(KINDS.get(kind, GATEWAY_CLASSES), Put(ObjectName("a", name), thing))
        self.settle()
        return file

    def proxy(self, name: str, cert: str = "cert", **spec: Any) -> str | None:
        host = {"fqdn": f"{name}.example", "tls": {"secretName": cert}}
        routes = [{"services": [{"name": "web", "port": 80}]}]
        return self.put("HTTPProxy", name, spec={"virtualhost": host, "routes": routes, **spec})

    def gone(self, kind: str, name: str) -> None:
        self.objects.take(KINDS[kind], Gone(ObjectName("a", name)))
        self.settle()

    def settle(self) -> None:
        self.library.settle()
        if self.objects.reclassify():
            self.library.settle()

    @property
    def loaded(self) -> Loaded:
        return self.library.current()

    def names(self, table: str) -> set[str]:
        return {each.name for each in getattr(self.loaded.resources, table)}


def test_a_secret_is_read_when_something_names_it() -> None:
    world = World()
    assert world.put("Secret", "cert", data={"x": "YWFh" * 500}) is None
    world.put("Secret", "other", data={})
    assert world.names("secrets") == set()
    world.proxy("web")
    assert world.names("secrets") == {"cert"}
    world.proxy("web", cert="other")
    assert world.names("secrets") == {"cert", "other"}
    world.put("Secret", "cert", data={"x": "Yg=="})
    assert world.names("secrets") == {"other"}
    world.gone("HTTPProxy", "web")
    world.gone("Secret", "other")
    assert (world.names("proxies"), world.names("secrets")) == (set(), set())


def test_an_endpoint_slice_comes_with_its_service() -> None:
    world = World()
    world.put("Service", "web", spec={"ports": [{"port": 80}]})
    slices = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 1}]}
    label = {"labels": {"kubernetes.io/service-name": "web"}}
    API["EndpointSlice"] = "discovery.k8s.io/v1"
    world.put("EndpointSlice", "web-x", meta=label, **slices)
    assert (world.names("services"), world.names("endpoint_slices")) == (set(), set())
    world.proxy("shop")
    assert (world.names("services"), world.names("endpoint_slices")) == ({"web"}, {"web"})


def test_a_change_of_what_we_do_not_read_is_none() -> None:
    world = World()
    assert world.proxy("web") == "httpproxies.projectcontour.io/a/web"
    assert world.proxy("web") is None
    host, routes = {"fqdn": "web.example", "tls": {"secretName": "cert"}}, [{"services": [{"name": "web", "port": 80}]}]
    same = {"spec": {"virtualhost": host, "routes": routes}, "status": {"currentStatus": "valid"}}
    assert world.put("HTTPProxy", "web", meta={"resourceVersion": "2", "uid": "u"}, **same) is None


def test_a_version_with_errors_keeps_what_the_one_before_names() -> None:
    world = World()
    world.put("Secret", "cert", data={"x": "YQ=="})
    world.proxy("web")
    world.put("HTTPProxy", "web", spec={"virtualhost": 1})
    world.put("Secret", "cert", data={"x": "Yg=="})
    assert (world.names("proxies"), world.names("secrets")) == ({"web"}, {"cert"})
    assert Ref("HTTPProxy", "a", "web") in world.loaded.last_good


def test_what_was_in_force_before_a_restart_names_what_it_needs_until_it_is_gone() -> None:
    world = World()
    text = '{"kind":"HTTPProxy","metadata":{"name":"old","namespace":"a"},"spec":{"secretName":"cert"}}'
    world.objects.restored({"httpproxies.projectcontour.io/a/old": text})
    world.put("Secret", "cert", data={"x": "YWFh"})
    assert world.names("secrets") == {"cert"}
    assert [*world.objects.listed(KINDS["HTTPProxy"])] == ["httpproxies.projectcontour.io/a/old"]
    world.put("Secret", "cert", data={"x": "YWFi"})
    assert world.names("secrets") == set()


def test_http_proxies_of_other_classes_are_not_there() -> None:
    world = World()
    world.proxy("ours", ingressClassName="authplane")
    world.proxy("plain")
    assert world.proxy("theirs", ingressClassName="contour") is None
    assert world.names("proxies") == {"ours", "plain"}
    world.put("ContourConfiguration", "c", spec={"ingress": {"classNames": ["contour"]}})
    assert world.names("proxies") == {"theirs"}
    world.gone("ContourConfiguration", "c")
    assert world.names("proxies") == {"ours", "plain"}


def test_gateways_are_ours_by_their_class_and_routes_by_their_gateways() -> None:
    world = World()
    listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
    world.put("Gateway", "edge", spec={"gatewayClassName": "edge", "listeners": listeners})
    world.put("HTTPRoute", "site", spec={"parentRefs": [{"name": "edge"}], "rules": []})
    assert (world.names("gateways"), world.names("http_routes")) == (set(), set())
    world.put("GatewayClass", "edge", spec={"controllerName": "authplane.dev/controller"})
    assert (world.names("gateways"), world.names("http_routes")) == ({"edge"}, {"site"})
    world.put("GatewayClass", "edge", spec={"controllerName": "example.com/other"})
    assert (world.names("gateways"), world.names("http_routes")) == (set(), set())


def test_words_name_objects_in_any_field() -> None:
    found = words_in(
        {
            "kind": "X",
            "metadata": {"name": "left-out"},
            "spec": {"a": ["ns/cert"], "b": {"host": "tools.shop.svc:80"}, "pem": "-----BEGIN X----- abc"},
            "data": {"contour.yaml": "tls:\n  fallback-certificate:\n    name: spare\n"},
        }
    )
    assert {"ns", "cert", "tools", "spare"} <= found
    assert not {"left-out", "abc"} & found


FORBIDDEN = {
    "policies close every target": ("AccessPolicy", "doubt"),
    "settings are as if they had errors": ("AuthplaneConfiguration", "broken"),
    "the file of Contour may authorize all hosts": ("ConfigMap", "broken"),
    "TLS policies may be for any Service": ("BackendTLSPolicy", "broken_tls_policies"),
    "HTTPProxies may claim any host": ("HTTPProxy", "unread_proxies"),
}


@pytest.mark.parametrize(("kind", "field"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_forbidden_kind(kind: str, field: str) -> None:
    loaded = withhold(Loaded(), [Withheld.of(KINDS[kind], "list", "")])
    assert getattr(loaded.resources, field)
    [finding] = loaded.findings
    assert (finding.place.file, finding.problem.reason) == (KINDS[kind].resource, REASON)
    assert f"may not list {KINDS[kind].resource}" in finding.problem.message


def test_policies_that_may_not_be_listed_leave_no_backend_open() -> None:
    world = World()
    API["Backend"] = "agentic.networking.x-k8s.io/v1alpha1"
    API["AuthplaneConfiguration"] = "authplane.dev/v1alpha1"
    world.put("Backend", "tools", spec={"type": "MCP", "mcp": {"serviceName": "tools", "port": 80}})
    world.put("AuthplaneConfiguration", "settings", spec={"unprotectedBackends": "Allow"})
    assert not build_generation(world.loaded).compiled.policies.closed
    closed = withhold(world.loaded, [Withheld.of(KINDS["AccessPolicy"], "list", "")])
    assert build_generation(closed).compiled.policies.closed


def test_what_loosens_waits_until_an_object_is_quiet() -> None:
    recent = RecentChanges(2.0)
    recent.add("x", 10.0)
    assert ("x" in recent.fresh(11.0), recent.due(["x", "y"])) == (True, 12.0)
    for now in range(11, 40):
        recent.add("x", float(now))
    assert recent.due(["x"]) == 30.0  # an object that changes again and again does not wait for ever
    assert "x" not in recent.fresh(30.0)
    assert recent.due(["x"]) is None
