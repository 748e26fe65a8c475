"""The targets of ExtensionServices: endpoints or names outside, their shares, and what comes and goes."""

import pytest
from tests.support.certificates import ca_secret
from tests.support.resources.contour_documents import AUTH, EXTENSION, World, whole, world
from tests.support.resources.graph_views import secure_hosts

from authplane.controlplane.graph.model.programming import NoProxy
from authplane.controlplane.graph.model.upstreams import EndpointGroup, ExtensionCluster, ExternalName
from authplane.controlplane.serving.generation import Generation, build_generation
from authplane.core.names import ObjectName
from authplane.resources.service_endpoints import Endpoint
from authplane.sources.document_versions import Library

TARGET = "  - {name: auth, port: 9443}\n"
OTHER = AUTH.replace("auth", "other").replace("10.0.0.2", "10.0.0.3")


def cluster_of(made: World) -> ExtensionCluster | None:
    found = [each for each in made.graph.clusters if isinstance(each, ExtensionCluster)]
    return found[0] if found else None


def external(name: str, host: str, ports: str = "") -> str:
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{type: ExternalName, externalName: '{host}', ports: [{ports}]}}
"""


def targets(*lines: str) -> str:
    return EXTENSION.replace(TARGET, "".join(f"  - {{{line}}}\n" for line in lines))


# --- Shape

BAD = {
    "no services": EXTENSION.replace(f"services:\n{TARGET}", "services: []\n"),
    "services left out": EXTENSION.replace(f"  services:\n{TARGET}", ""),
    "no name": targets("port: 9443"),
    "an empty name": targets("name: '', port: 9443"),
    "no port": targets("name: auth"),
    "port zero": targets("name: auth, port: 0"),
    "a port too high": targets("name: auth, port: 65536"),
    "a negative weight": targets("name: auth, port: 9443, weight: -1"),
    "a weight of more than 32 bits": targets("name: auth, port: 9443, weight: 4294967296"),
    "a namespace": targets("name: auth, port: 9443, namespace: other"),
}


@pytest.mark.requirement("ES-2")
@pytest.mark.requirement("ES-3")
@pytest.mark.requirement("ES-4")
@pytest.mark.parametrize("extension", BAD.values(), ids=BAD.keys())
def test_a_target_of_another_shape_is_one_error_and_no_cluster(extension: str) -> None:
    made = world(extension=extension, proxy="")
    assert len(made.problems("ExtensionService")) == 1
    assert cluster_of(made) is None


@pytest.mark.requirement("ES-1")
def test_an_extension_service_of_a_cluster_is_read_with_its_namespace_and_without_its_status() -> None:
    extension = EXTENSION.replace("{name: auth}", "{name: auth, namespace: other, generation: 7}").replace(
        "caSecret: ca", "caSecret: other"
    )
    written = extension + "status: {conditions: [{type: Valid, status: 'False'}]}\n"
    auth = AUTH.replace("{name: auth", "{namespace: other, name: auth")
    made = world(extension=written, auth=auth, ca=ca_secret("other", namespace="other"), proxy="")
    assert made.problems("ExtensionService") == []
    cluster = cluster_of(made)
    assert cluster is not None
    assert (cluster.name, cluster.ready_endpoints) == ("extension/other/auth", 1)
    [status] = [each for each in made.generation.status(NoProxy()) if each.ref.kind == "ExtensionService"]
    assert (status.api_version, status.generation) == ("projectcontour.io/v1alpha1", 7)


# --- Services

UNRESOLVED = {
    "no Service": ("name: missing, port: 9443", 'service "default/missing" not found'),
    "no such port": ("name: auth, port: 9999", 'port "9999" on service "default/auth" not matched'),
    "a port of another protocol": ("name: dns, port: 53", 'unsupported service protocol "UDP"'),
}
DNS = "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec: {ports: [{port: 53, protocol: UDP}]}\n"


@pytest.mark.requirement("ES-20")
@pytest.mark.parametrize(("target", "why"), UNRESOLVED.values(), ids=UNRESOLVED.keys())
def test_a_target_that_cannot_be_resolved_is_an_error(target: str, why: str) -> None:
    made = world(extension=targets(target), dns=DNS, proxy="")
    name = target.removeprefix("name: ").partition(",")[0]
    assert made.problems("ExtensionService") == [
        ("ServiceUnresolvedReference", f'unresolved service "default/{name}": {why}')
    ]
    assert cluster_of(made) is None


@pytest.mark.requirement("ES-22")
def test_every_target_that_cannot_be_resolved_is_named_and_one_is_enough_to_have_no_cluster() -> None:
    made = world(extension=targets(*(target for target, _ in UNRESOLVED.values()), "name: auth, port: 9443"), dns=DNS)
    assert [message.rpartition('": ')[2] for _, message in made.problems("ExtensionService")] == [
        why for _, why in UNRESOLVED.values()
    ]
    assert cluster_of(made) is None


@pytest.mark.requirement("ES-4")
def test_a_service_of_another_namespace_is_not_found() -> None:
    elsewhere = AUTH.replace("{name: auth}", "{name: auth, namespace: other}", 1)
    assert [reason for reason, _ in world(auth=elsewhere).problems("ExtensionService")] == [
        "ServiceUnresolvedReference"
    ]


@pytest.mark.requirement("ES-24")
def test_a_service_that_comes_or_goes_later_is_noticed_and_what_is_not_touched_is_kept() -> None:
    library = Library()
    parts = whole()
    service = parts.pop("auth")
    for name, text in parts.items():
        library.changed(f"{name}.yaml", text.encode())

    def valid(generation: Generation) -> list[ExtensionCluster]:
        return [each for each in generation.built.graph.clusters if isinstance(each, ExtensionCluster)]

    before = build_generation(library.current())
    library.changed("auth.yaml", service.encode())
    later = build_generation(library.current(), before)
    library.removed("auth.yaml")
    after = build_generation(library.current(), later)
    assert [len(valid(each)) for each in (before, later, after)] == [0, 1, 0]
    assert [len(secure_hosts(each.built.graph)) for each in (before, later, after)] == [0, 1, 0]
    assert after.snapshot == before.snapshot


# --- Weights

WEIGHTS = {"none": (0, 0, (1, 1)), "some": (3, 1, (3, 1)), "one of them zero": (2, 0, (2, 0))}


@pytest.mark.requirement("ES-23")
@pytest.mark.parametrize(("first", "second", "want"), WEIGHTS.values(), ids=WEIGHTS.keys())
def test_weights_are_equal_when_nobody_sets_one(first: int, second: int, want: tuple[int, int]) -> None:
    written = targets(f"name: auth, port: 9443, weight: {first}", f"name: other, port: 9443, weight: {second}")
    cluster = cluster_of(world(extension=written, other=OTHER))
    assert cluster is not None
    assert cluster.destinations == (
        EndpointGroup(service=ObjectName("default", "auth"), weight=want[0], endpoints=(Endpoint("10.0.0.2", 9443),)),
        EndpointGroup(service=ObjectName("default", "other"), weight=want[1], endpoints=(Endpoint("10.0.0.3", 9443),)),
    )


@pytest.mark.requirement("ES-3")
def test_weights_that_envoy_cannot_add_up_are_an_error() -> None:
    most = 2**32 - 1
    made = world(extension=targets(f"name: auth, port: 9443, weight: {most}", "name: auth, port: 9443, weight: 1"))
    assert made.problems("ExtensionService") == [
        ("TargetWeightsNotValid", f"The sum of the weights exceeds {most}. Lower the weights.")
    ]
    assert cluster_of(made) is None


# --- Names outside

SETTINGS = """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: gateway}
spec: {contour: {%s}}
"""


@pytest.mark.requirement("ES-21")
def test_targets_that_are_all_external_names_are_looked_up_by_the_proxy() -> None:
    made = world(
        extension=targets("name: first, port: 443, weight: 3", "name: second, port: 9443, weight: 1"),
        first=external("first", "Auth.Example.com."),
        second=external("second", "10.1.2.3", "{port: 443}, {port: 9443}"),
        proxy="",
    )
    cluster = cluster_of(made)
    assert made.problems("ExtensionService") == []
    assert cluster is not None
    assert cluster.destinations == (
        ExternalName(service=ObjectName("default", "first"), weight=3, host="auth.example.com", port=443),
        ExternalName(service=ObjectName("default", "second"), weight=1, host="10.1.2.3", port=9443),
    )
    assert cluster.ready_endpoints == 2


@pytest.mark.requirement("ES-21")
def test_a_mix_of_endpoints_and_names_outside_is_an_error() -> None:
    made = world(
        extension=targets("name: auth, port: 9443", "name: outside, port: 443"),
        outside=external("outside", "auth.example.com"),
        proxy="",
    )
    assert made.problems("ExtensionService") == [
        (
            "UnsupportedServiceType",
            'Service "default/outside" is of type "ExternalName" and Service "default/auth" is not. '
            "Use one type for all services.",
        )
    ]
    assert cluster_of(made) is None


REFUSED = {
    "localhost": "that points to localhost, this is not allowed. Use an EndpointSlice.",
    "169.254.169.254": "that points to a link-local address, this is not allowed. Use an EndpointSlice.",
    "not a name": "whose externalName 'not a name' is not a DNS name. Correct it.",
}


@pytest.mark.requirement("ES-21")
@pytest.mark.requirement("T03")
@pytest.mark.parametrize(("host", "why"), REFUSED.items(), ids=REFUSED.keys())
def test_a_name_outside_that_leads_inside_or_nowhere_is_an_error(host: str, why: str) -> None:
    made = world(extension=targets("name: outside, port: 443"), outside=external("outside", host), proxy="")
    assert made.problems("ExtensionService") == [
        (
            "ServiceUnresolvedReference",
            f'unresolved service "default/outside": default/outside is an ExternalName service {why}',
        )
    ]
    assert cluster_of(made) is None


def test_a_port_that_an_external_name_service_does_not_have_is_an_error() -> None:
    outside = external("outside", "auth.example.com", "{port: 443}")
    made = world(extension=targets("name: outside, port: 80"), outside=outside, proxy="")
    assert made.problems("ExtensionService") == [
        (
            "ServiceUnresolvedReference",
            'unresolved service "default/outside": port "80" on service "default/outside" not matched',
        )
    ]


@pytest.mark.requirement("ES-21")
def test_the_operator_may_allow_local_names_or_forbid_all() -> None:
    local = {"extension": targets("name: outside, port: 443"), "outside": external("outside", "localhost")}
    anywhere = cluster_of(world(settings=SETTINGS % "allowLocalExternalNames: true", **local))
    assert anywhere is not None
    assert anywhere.destinations == (
        ExternalName(service=ObjectName("default", "outside"), weight=1, host="localhost", port=443),
    )
    outside = external("outside", "auth.example.com")
    nowhere = world(settings=SETTINGS % "enableExternalNameService: false", **(local | {"outside": outside}))
    assert nowhere.problems("ExtensionService") == [
        ("UnsupportedServiceType", 'Service "default/outside" is of unsupported type "ExternalName".')
    ]
    assert cluster_of(nowhere) is None
