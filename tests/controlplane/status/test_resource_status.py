"""Conditions, as Kubernetes stores them."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.support.resources.contour_documents import AUTH, ECHO, EXTENSION, PROXY, world

from authplane.controlplane.graph.model.programming import Answered, NoProxy
from authplane.controlplane.status.resource_status import Condition, SubCondition
from authplane.controlplane.status.status_json import Transitions
from authplane.core.names import Ref
from authplane.xds.server.served_types import TypeUrl

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.requirement("ES-31")
def test_a_valid_extension_service_says_so() -> None:
    assert world().status("ExtensionService", "auth").conditions[0] == Condition(
        type="Valid", status="True", reason="Valid", message="Valid ExtensionService"
    )


@pytest.mark.requirement("ES-31")
def test_errors_and_warnings_are_listed_with_type_and_reason() -> None:
    made = world(extension=EXTENSION.replace("9443", "1") + "  protocolVersion: v2\n")
    assert made.status("ExtensionService", "auth").conditions[0] == Condition(
        type="Valid",
        status="False",
        reason="ErrorPresent",
        message="At least one error present, see Errors for details",
        errors=(
            SubCondition(
                type="ServiceError",
                reason="ServiceUnresolvedReference",
                message='unresolved service "default/auth": port "1" on service "default/auth" not matched',
            ),
        ),
        warnings=(
            SubCondition(
                type="SpecError",
                reason="IgnoredField",
                message="spec.protocolVersion: Envoy does not support protocol version v2 and uses v3. Set v3.",
            ),
        ),
    )


@pytest.mark.requirement("ES-31")
def test_a_long_message_is_cut_to_what_kubernetes_stores() -> None:
    made = world(extension=EXTENSION + f"  loadBalancerPolicy: {{strategy: {'x' * 40_000}}}\n")
    [warning] = made.status("ExtensionService", "auth").conditions[0].warnings
    assert len(warning.message) == 32_760


@pytest.mark.requirement("ES-33")
def test_ready_counts_endpoints_and_names_the_cluster() -> None:
    ready = world().status("ExtensionService", "auth").conditions[1]
    assert ready == Condition(
        type="Ready",
        status="True",
        reason="EndpointsReady",
        message='1 ready endpoint; Envoy cluster "extension/default/auth"',
    )
    away = world(auth=AUTH.replace("- addresses: [10.0.0.2]", "- addresses: [10.0.0.2]\n  conditions: {ready: false}"))
    assert away.status("ExtensionService", "auth").conditions[1] == Condition(
        type="Ready",
        status="False",
        reason="NoReadyEndpoints",
        message='0 ready endpoints; Envoy cluster "extension/default/auth"',
    )


def test_an_endpoint_without_load_does_not_count_as_ready() -> None:
    target = "  - {name: auth, port: 9443}\n"
    idle = target.replace("9443}", "9443, weight: 0}") + "  - {name: echo, port: 80, weight: 5}\n"
    made = world(extension=EXTENSION.replace(target, idle), echo=ECHO.split("---")[0])
    assert made.status("ExtensionService", "auth").conditions[1].reason == "NoReadyEndpoints"


def test_programmed_is_what_proxies_say() -> None:
    made = world()

    def programmed(programming: NoProxy | Answered, kind: str = "HTTPProxy", name: str = "web") -> tuple[str, str]:
        condition = next(each for each in made.status(kind, name, programming).conditions if each.type == "Programmed")
        return condition.status, condition.reason

    refused = Answered(refused={(TypeUrl.LISTENER, "ingress_https"): "no such filter"})
    assert programmed(NoProxy()) == ("Unknown", "NoProxyConnected")
    assert programmed(Answered(pending=frozenset({(TypeUrl.SECRET, "default/tls")}))) == ("Unknown", "Pending")
    assert programmed(Answered()) == ("True", "Programmed")
    assert programmed(refused) == ("False", "Rejected")
    assert programmed(refused, "ExtensionService", "auth") == ("True", "Programmed")


def test_a_withdrawn_proxy_is_not_programmed() -> None:
    made = world(extension="")
    conditions = {each.type: each for each in made.status("HTTPProxy", "web", Answered()).conditions}
    assert (conditions["Programmed"].status, conditions["Programmed"].reason) == ("False", "NotValid")


def test_a_document_that_cannot_be_read_has_a_status_too() -> None:
    made = world(proxy=PROXY.replace("fqdn:", "fqdm:"))
    valid = made.status("HTTPProxy", "web").conditions[0]
    assert valid.status == "False"
    assert [(error.type, error.reason) for error in valid.errors] == [
        ("SpecError", "FieldUnknown"),
        ("SpecError", "FieldRequired"),
    ] or [(error.type, error.reason) for error in valid.errors] == [
        ("SpecError", "FieldRequired"),
        ("SpecError", "FieldUnknown"),
    ]


@pytest.mark.requirement("AZ-23")
@pytest.mark.parametrize(
    ("proxy", "word", "description"),
    [
        (PROXY, "valid", "Valid HTTPProxy"),
        (
            PROXY.replace("name: auth", "name: missing"),
            "invalid",
            "At least one error present, see Errors for details",
        ),
        (
            "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\nmetadata: {name: web}\nspec: {}\n",
            "orphaned",
            "this HTTPProxy is not part of a delegation chain from a root HTTPProxy",
        ),
    ],
)
def test_the_old_fields_of_an_httpproxy_are_there(proxy: str, word: str, description: str) -> None:
    made = world(proxy=proxy)
    [record] = [
        record
        for record in Transitions().records(made.generation.status(NoProxy()), NOW)
        if record["kind"] == "HTTPProxy"
    ]
    assert (record["status"]["currentStatus"], record["status"]["description"]) == (word, description)
    assert record["apiVersion"] == "projectcontour.io/v1"
    assert record["metadata"] == {"name": "web", "namespace": "default"}


def test_a_condition_keeps_the_time_of_its_last_transition() -> None:
    transitions = Transitions()
    made = world()

    def since(programming: NoProxy | Answered, now: datetime) -> dict[str, str]:
        statuses = [made.status("HTTPProxy", "web", programming)]
        [record] = transitions.records(statuses, now)
        return {each["type"]: each["lastTransitionTime"] for each in record["status"]["conditions"]}

    later = NOW + timedelta(minutes=1)
    assert since(NoProxy(), NOW) == {"Valid": "2026-01-02T03:04:05Z", "Programmed": "2026-01-02T03:04:05Z"}
    assert since(NoProxy(), later) == {"Valid": "2026-01-02T03:04:05Z", "Programmed": "2026-01-02T03:04:05Z"}
    assert since(Answered(), later) == {"Valid": "2026-01-02T03:04:05Z", "Programmed": "2026-01-02T03:05:05Z"}


def test_the_generation_that_was_seen_is_named() -> None:
    made = world(proxy=PROXY.replace("{name: web}", "{name: web, generation: 7}"))
    status = made.status("HTTPProxy", "web")
    assert (status.ref, status.generation) == (Ref("HTTPProxy", "default", "web"), 7)


OTHERS = {
    "ContourConfiguration": """
apiVersion: projectcontour.io/v1alpha1
kind: ContourConfiguration
metadata: {name: more, generation: 3}
spec: {}
""",
    "TLSCertificateDelegation": """
apiVersion: projectcontour.io/v1
kind: TLSCertificateDelegation
metadata: {name: more, generation: 3}
spec: {delegations: [{secretName: tls, targetNamespaces: ["*"]}]}
""",
    "AuthplaneConfiguration": """
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {name: more, generation: 3}
""",
}


@pytest.mark.parametrize(("kind", "document"), OTHERS.items(), ids=OTHERS.keys())
def test_kinds_that_no_proxy_gets_are_valid_or_not(kind: str, document: str) -> None:
    status = world(more=document).status(kind, "more")
    assert status.generation == 3
    assert status.conditions == (Condition(type="Valid", status="True", reason="Valid", message=f"Valid {kind}"),)
    broken = world(more=document.replace("generation: 3", "generetion: 3")).status(kind, "more")
    assert [(each.type, each.status) for each in broken.conditions] == [("Valid", "False")]


@pytest.mark.requirement("AZ-23")
def test_an_error_of_an_included_proxy_is_its_own() -> None:
    included = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: part}
spec:
  routes:
  - services: [{name: missing, port: 80}]
"""
    made = world(proxy=PROXY + "  includes:\n  - {name: part, conditions: [{prefix: /part}]}\n", part=included)
    assert made.status("HTTPProxy", "web").conditions[0].status == "True"
    [error] = made.status("HTTPProxy", "part").conditions[0].errors
    assert (error.type, error.reason) == ("ServiceError", "ServiceUnresolvedReference")


@pytest.mark.requirement("ES-31")
def test_a_warning_changes_nothing_else() -> None:
    proxy = PROXY.replace("extensionRef: {name: auth}", "extensionRef: {name: auth}\n      failOpen: true")
    valid = world(proxy=proxy).status("HTTPProxy", "web").conditions[0]
    assert (valid.status, valid.reason, valid.message, valid.errors) == ("True", "Valid", "Valid HTTPProxy", ())
    assert [(warning.type, warning.reason) for warning in valid.warnings] == [("AuthError", "AuthFailOpen")]
