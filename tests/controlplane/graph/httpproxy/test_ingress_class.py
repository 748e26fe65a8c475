"""HTTPProxies of another ingress class are left to their own controller."""

import pytest
from tests.support.resources.contour_documents import PROXY, World, whole, world
from tests.support.resources.graph_views import secure_hosts

from authplane.controlplane.graph.model.route_model import Respond
from authplane.controlplane.serving.generation import build_generation
from authplane.core.names import ObjectName
from authplane.sources.document_versions import Library

NGINX = "annotations: {kubernetes.io/ingress.class: nginx}"
OURS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: authplane}
spec: {contour: {ingress: {classNames: [edge, public]}}}
"""
THEIRS = """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: contour}
spec: {ingress: {classNames: [edge], statusAddress: 192.0.2.1}}
"""


def marked(annotations: str = "", field: str = "", proxy: str = PROXY) -> str:
    """Return an HTTPProxy with these annotations and this ``ingressClassName``."""
    text = proxy.replace("metadata: {name: ", f"metadata: {{annotations: {{{annotations}}}, name: ")
    return text.replace("spec:\n", f"spec:\n  ingressClassName: {field}\n") if field else text


def served(made: World) -> bool:
    assert (made.secure() is None) == (made.plain() is None)
    return made.secure() is not None


OLD, NEW = "kubernetes.io/ingress.class", "projectcontour.io/ingress.class"
DEFAULT = {
    "no class": (marked(), True),
    "Contour's, by the older annotation": (marked(f"{OLD}: contour"), True),
    "Contour's, by the newer annotation": (marked(f"{NEW}: contour"), True),
    "Contour's, by the field": (marked(field="contour"), True),
    "another, by the older annotation": (marked(f"{OLD}: nginx"), False),
    "another, by the newer annotation": (marked(f"{NEW}: nginx"), False),
    "another, by the field": (marked(field="nginx"), False),
    "the newer annotation wins": (marked(f"{OLD}: nginx, {NEW}: contour"), True),
    "and loses nothing to the older": (marked(f"{OLD}: contour, {NEW}: nginx"), False),
    "an annotation wins over the field": (marked(f"{OLD}: contour", "nginx"), True),
    "an empty annotation leaves it to the field": (marked(f"{OLD}: ''", "nginx"), False),
    "an empty newer annotation hides the older": (marked(f"{NEW}: '', {OLD}: nginx"), True),
    "names are compared whole": (marked(field="contour-internal"), False),
    "and by case": (marked(field="Contour"), False),
}


@pytest.mark.parametrize(("proxy", "is_served"), DEFAULT.values(), ids=DEFAULT.keys())
def test_by_default_what_contour_serves_by_default_is_served(proxy: str, is_served: bool) -> None:
    assert served(world(proxy=proxy)) == is_served


@pytest.mark.parametrize(
    ("configuration", "given", "is_served"),
    [
        (OURS, "edge", True),
        (OURS, "public", True),
        (OURS, "contour", False),
        (OURS, "", False),
        (THEIRS, "edge", True),
        (THEIRS, "", False),
    ],
)
def test_configured_classes_are_the_only_ones(configuration: str, given: str, is_served: bool) -> None:
    made = world(proxy=marked(field=given), configuration=configuration)
    assert served(made) == is_served
    assert made.problems("AuthplaneConfiguration") == made.problems("ContourConfiguration") == []


def test_both_configurations_must_say_the_same() -> None:
    made = world(ours=OURS, theirs=THEIRS)
    assert [reason for reason, _ in made.problems("AuthplaneConfiguration")] == ["FieldConflict"]
    assert not served(made)


def test_a_copy_of_a_host_under_another_class_does_not_take_the_real_one_down() -> None:
    copy = marked(f"{OLD}: nginx", proxy=PROXY.replace("{name: web}", "{name: copy}"))
    made = world(copy=copy)
    assert served(made)
    assert made.problems("HTTPProxy") == []


def test_a_broken_copy_of_another_class_costs_no_wildcard() -> None:
    wild = PROXY.replace("{name: web}", "{name: wild}").replace("web.example", "'*.example'")
    broken = marked(f"{OLD}: nginx").replace("fqdn:", "fqdm:")
    made = world(proxy=broken, wild=wild)
    assert made.problems("HTTPProxy", "wild") == []
    assert made.secure("*.example") is not None
    unclear = broken.replace(": nginx", ": 7")
    assert [reason for reason, _ in world(proxy=unclear, wild=wild).problems("HTTPProxy", "wild")] == [
        "WildcardUncertain"
    ]


def test_an_included_proxy_of_another_class_is_not_there() -> None:
    root = PROXY.replace("  routes:", "  includes: [{name: child, conditions: [{prefix: /open}]}]\n  routes:")
    child = f"""
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {{name: child, {NGINX}}}
spec:
  routes:
  - services: [{{name: echo, port: 80}}]
    authPolicy: {{disabled: true}}
"""
    made = world(proxy=root, child=child)
    secure = made.secure()
    assert secure is not None
    opened = next(each for each in secure.host.routes if each.match.path.path == "/open")
    assert isinstance(opened.action, Respond)
    assert (opened.action.status, type(opened.authorization).__name__) == (502, "Enforced")
    assert made.problems("HTTPProxy", "web") == [("IncludeNotFound", "include default/child not found. Add it.")]
    assert ObjectName("default", "child") not in secure.host.proxies


def test_status_and_validate_say_whose_it_is() -> None:
    made = world(proxy=marked(f"{OLD}: nginx"))
    message = (
        'This gateway does not serve HTTPProxies of ingress class "nginx". It serves only HTTPProxies without a class '
        'and those of "authplane" or "contour". Change the class of the HTTPProxy, or spec.ingress.classNames of the '
        "ContourConfiguration."
    )
    assert made.warnings("HTTPProxy") == [("OtherIngressClass", message)]
    status = made.status("HTTPProxy", "web")
    assert [(each.type, each.status, each.reason) for each in status.conditions] == [
        ("Valid", "Unknown", "OtherIngressClass"),
        ("Programmed", "False", "OtherIngressClass"),
    ]
    assert status.conditions[0].message == message


def test_a_change_of_class_is_seen_by_the_next_generation() -> None:
    library = Library()
    for name, text in whole().items():
        library.changed(name, text.encode())
    first = build_generation(library.current())
    assert [each.host.name for each in secure_hosts(first.built.graph)] == ["web.example"]
    library.changed("proxy", marked(field="nginx").encode())
    second = build_generation(library.current(), first)
    assert secure_hosts(second.built.graph) == ()
    library.changed("proxy", PROXY.encode())
    third = build_generation(library.current(), second)
    assert secure_hosts(third.built.graph) == secure_hosts(first.built.graph)
