"""`authplane crds --all` in a real cluster: definitions are established, and schemas refuse what the reader refuses."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from click.testing import CliRunner
from tests.cli.crd_cases import ACCEPTED, LEFT_TO_THE_STATUS, REFUSED, Case
from tests.support.eventually import eventually
from tests.support.kubernetes.api_clients import api_client
from tests.support.kubernetes.api_objects import documents
from tests.support.kubernetes.local_cluster import Cluster, running_cluster
from tests.support.pages import ROOT
from tests.support.resources.broken_documents import Broken, broken_documents
from tools.gen_crds.cluster_kinds import CLUSTER_KINDS
from tools.gen_crds.definitions import FILE
from tools.gen_crds.validation_rules import RULES

from authplane.cli.main import build_app
from authplane.cli.shared.built_folder import read_generation
from authplane.core.problems import Severity, dotted
from authplane.resources.catalogue import KINDS
from authplane.sources.runtime.read_schemas import read_installed_kinds

pytestmark = pytest.mark.real

DEFINITIONS: Final = json.loads((ROOT / FILE).read_text(encoding="utf-8"))
CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOT_FOUND: Final = {"TargetNotFound", "BackendNotFound"}
STRICT: Final = {"dryRun": "All", "fieldValidation": "Strict"}


@pytest.fixture(scope="module")
def defined(cluster_programs: Mapping[str, Path]) -> Iterator[Cluster]:
    """Run a cluster that has our definitions of all kinds, as `authplane crds --all | kubectl apply` makes it."""
    with (
        TemporaryDirectory(prefix="authplane-crds-") as folder,
        running_cluster(Path(folder), cluster_programs) as cluster,
    ):
        printed = Path(folder) / "crds.yaml"
        printed.write_text(CliRunner().invoke(build_app(), ["crds", "--all"]).output, encoding="utf-8")
        cluster.install_crds([printed])
        yield cluster


@pytest.mark.requirement("KC-1")
def test_every_definition_is_established_and_its_schema_is_structural(defined: Cluster) -> None:
    for each in DEFINITIONS:
        name = each["metadata"]["name"]
        status = defined.objects.request("GET", f"{CRDS}/{name}").json()["status"]
        found = {condition["type"]: condition["status"] for condition in status["conditions"]}
        wanted = {"NamesAccepted": "True", "Established": "True"}
        if each["spec"]["group"] == "gateway.networking.k8s.io":
            wanted["KubernetesAPIApprovalPolicyConformant"] = "False"
        assert found == wanted, name
        assert status["acceptedNames"] == each["spec"]["names"]


def test_a_group_of_kubernetes_needs_the_annotation_and_one_of_x_k8s_does_not(defined: Cluster) -> None:
    for each in DEFINITIONS:
        bare = {**each, "metadata": {"name": each["metadata"]["name"]}}
        path = f"{CRDS}/{each['metadata']['name']}"
        version = defined.objects.request("GET", path).json()["metadata"]["resourceVersion"]
        bare["metadata"]["resourceVersion"] = version
        answer = defined.objects.request("PUT", path, bare, query={"dryRun": "All"})
        kept = "annotations" not in each["metadata"]
        assert answer.status_code == (200 if kept else 422), answer.text


async def test_the_api_server_drops_no_field_that_we_read(defined: Cluster) -> None:
    async with api_client(defined) as client:

        async def published() -> bool:
            return all(each.version for each in await read_installed_kinds(client))

        await eventually(published)  # the API server publishes a schema some time after the kind is established
        found = await read_installed_kinds(client)
    assert [each for each in found if each.pruned] == []
    assert len(found) == len(DEFINITIONS) - 1  # a GatewayClass is no document


# --- One field


def broken() -> list[Broken]:
    """Return documents that break one field each."""
    return [
        each
        for definition in DEFINITIONS
        for version in definition["spec"]["versions"]
        for name in (f"{definition['spec']['group']}/{version['name']}",)
        for kind in (definition["spec"]["names"]["kind"],)
        for each in broken_documents(name, kind, {**KINDS, **CLUSTER_KINDS}[name, kind])
    ]


@pytest.mark.requirement("KC-2")
def test_the_api_server_refuses_each_broken_field_and_names_it(defined: Cluster) -> None:
    accepted = []
    found = broken()
    for each in found:
        path = defined.objects.path(each.document, named=False)
        answer = defined.objects.request("POST", path, each.document, query=STRICT)
        if answer.is_success or not _names(answer.json(), each.path):
            accepted.append((each.document["kind"], each.path, each.how, answer.text))
    assert accepted == []
    assert len(found) > 2000


def _names(status: dict[str, Any], path: tuple[str | int, ...]) -> bool:
    """Tell whether a refusal names a field."""
    places = [each.get("field", "") for each in status.get("details", {}).get("causes", ())]
    return dotted(path) in places or f'"{dotted(path)}"' in status["message"]


# --- Several fields


@pytest.mark.parametrize("case", REFUSED, ids=lambda each: f"{each.kind} {each.message}")
@pytest.mark.requirement("KC-3")
def test_the_api_server_refuses_what_the_control_plane_refuses(defined: Cluster, tmp_path: Path, case: Case) -> None:
    answer = defined.objects.request("POST", _collection(defined, case), case.document, query=STRICT)
    assert answer.status_code == 422, answer.text
    assert case.message in answer.json()["message"]
    assert errors(case, tmp_path)


def test_each_rule_has_a_document_that_breaks_it() -> None:
    messages = {rule.message for rules in RULES.values() for rule in rules}
    proven = {message for message in messages for case in REFUSED if message.startswith(case.message)}
    assert proven == messages


@pytest.mark.parametrize("case", LEFT_TO_THE_STATUS, ids=lambda each: f"{each.kind} {each.spec}")
@pytest.mark.requirement("KC-3")
def test_what_no_schema_refuses_is_an_error_of_the_control_plane(defined: Cluster, tmp_path: Path, case: Case) -> None:
    answer = defined.objects.request("POST", _collection(defined, case), case.document, query=STRICT)
    assert answer.status_code == 201, answer.text
    assert errors(case, tmp_path)


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda each: f"{each.kind} {each.spec}")
def test_what_the_control_plane_accepts_the_api_server_accepts(defined: Cluster, tmp_path: Path, case: Case) -> None:
    answer = defined.objects.request("POST", _collection(defined, case), case.document, query=STRICT)
    assert answer.status_code == 201, answer.text
    assert errors(case, tmp_path) == []


def _collection(cluster: Cluster, case: Case) -> str:
    return cluster.objects.path(case.document, named=False)


def errors(case: Case, folder: Path) -> list[str]:
    """Return the errors that the control plane has with a document, beside what the document refers to."""
    (folder / "a.json").write_text(json.dumps(case.document), encoding="utf-8")
    found = [each.problem for each in read_generation(folder).findings]
    return [each.message for each in found if each.severity is Severity.ERROR and each.reason not in NOT_FOUND]


# --- Examples


def examples() -> list[tuple[str, dict[str, Any]]]:
    """Return every object of the examples, and where it is."""
    files = [each for each in sorted((ROOT / "examples").rglob("*.yaml")) if each.suffixes == [".yaml"]]
    return [
        (f"{file.relative_to(ROOT)} {each['kind']} {each['metadata']['name']}", each)
        for file in files
        for each in documents(file.read_text(encoding="utf-8"))
        if (each["apiVersion"], each["kind"]) in KINDS
    ]


UNKNOWN_UPSTREAM: Final = {
    # Contour 1.33 has no authorization services over HTTP.
    "examples/contour-teams/auth.yaml ExtensionService accounts-http": "spec.protocol",
    "examples/contour-teams/hosts.yaml HTTPProxy reports": "spec.virtualhost.authorization.httpSettings",
}
"""Examples that the definitions of other projects refuse, and the field."""


def on_loopback(document: Mapping[str, Any]) -> bool:
    """Tell whether the document has endpoints on this machine, which no API server accepts."""
    endpoints = document.get("endpoints", ())
    return any(address.startswith("127.") for each in endpoints for address in each["addresses"])


def refused(cluster: Cluster, found: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, str]]:
    """Return what the API server says of the objects that it refuses; nothing is created but their namespaces."""
    for name in {each["metadata"].get("namespace", "default") for _, each in found}:
        cluster.objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    answers = {
        place: cluster.objects.request("POST", cluster.objects.path(each, named=False), each, query=STRICT)
        for place, each in found
    }
    return [(place, answer.text) for place, answer in answers.items() if not answer.is_success]


@pytest.mark.requirement("KC-4")
def test_every_example_is_accepted_strictly(defined: Cluster) -> None:
    found = [(place, each) for place, each in examples() if not on_loopback(each)]
    assert refused(defined, found) == []
    assert len(found) > 40


@pytest.mark.requirement("KC-4")
def test_the_definitions_of_other_projects_accept_the_examples_strictly(upstream_crds: Cluster) -> None:
    foreign = ("projectcontour.io/", "gateway.networking.k8s.io/")
    found = [(place, each) for place, each in examples() if each["apiVersion"].startswith(foreign)]
    said = refused(upstream_crds, found)
    assert {place for place, _ in said} == set(UNKNOWN_UPSTREAM)
    assert all(UNKNOWN_UPSTREAM[place] in words for place, words in said)
    assert len(found) > 15


# --- kubectl get


def condition(kind: str, status: str = "True", reason: str = "Fine", **more: Any) -> dict[str, Any]:
    times = {"observedGeneration": 1, "lastTransitionTime": "2026-01-31T12:00:00Z"}
    return {"type": kind, "status": status, "reason": reason, "message": "", **times, **more}


@pytest.mark.requirement("KC-5")
def test_kubectl_get_shows_host_state_and_reason_of_an_httpproxy(defined: Cluster) -> None:
    document = _object("projectcontour.io/v1", "HTTPProxy", {"virtualhost": {"fqdn": "shop.example"}})
    error = {"type": "TLSError", "status": "True", "reason": "SecretNotValid", "message": "No Secret. Add it."}
    conditions = [condition("Valid", "False", "ErrorPresent", errors=[error]), condition("Programmed", "False")]
    assert _row(defined, document, {"conditions": conditions}) == {
        "Name": "shown", "FQDN": "shop.example", "TLS Secret": "", "Valid": "False", "Reason": "SecretNotValid",
        "Programmed": "False", "Message": "No Secret. Add it.",
    }  # fmt: skip


@pytest.mark.requirement("KC-5")
def test_kubectl_get_shows_targets_and_enforcement_of_a_policy(defined: Cluster) -> None:
    targets = [{"kind": "Backend", "name": "a"}, {"kind": "Backend", "name": "b"}]
    document = _object("agentic.networking.x-k8s.io/v1alpha1", "AccessPolicy", {"targetRefs": targets, "rules": []})
    reports = [
        [condition("Accepted", reason="Accepted"), condition("Enforced", reason="Native")],
        [condition("Accepted", "False", "TargetNotFound", message="No Backend. Add it."), condition("Enforced")],
    ]
    ancestors = [
        {"ancestorRef": each, "controllerName": "authplane.dev/controller", "conditions": conditions}
        for each, conditions in zip(targets, reports, strict=True)
    ]
    assert _row(defined, document, {"ancestors": ancestors}) == {
        "Name": "shown", "Target": "a", "Mode": "Enforce", "Accepted": "True", "Enforced": "True",
        "Placement": "Native", "Problem": "TargetNotFound", "Message": "No Backend. Add it.",
    }  # fmt: skip


@pytest.mark.requirement("KC-5")
def test_kubectl_get_shows_place_and_protection_of_a_backend(defined: Cluster) -> None:
    document = _object("agentic.networking.x-k8s.io/v1alpha1", "Backend", {"mcp": {"url": "https://a.example"}})
    conditions = [condition("Protected", "False", "DeniedByDefault"), condition("Programmed")]
    assert _row(defined, document, {"conditions": conditions}) == {
        "Name": "shown", "Type": "MCP", "Service": "", "Host": "https://a.example", "Protected": "False",
        "Reason": "DeniedByDefault", "Programmed": "True", "Message": "",
    }  # fmt: skip


def test_kubectl_get_authplane_lists_all_kinds_and_short_names_work(defined: Cluster) -> None:
    document = _object("projectcontour.io/v1", "HTTPProxy", {"virtualhost": {"fqdn": "shop.example"}})
    defined.objects.apply(document)
    listed = defined.kubectl("get", "authplane", "--all-namespaces", "--no-headers")
    assert "httpproxy.projectcontour.io/shown" in listed.stdout, listed.stderr
    for definition in DEFINITIONS:
        for name in definition["spec"]["names"].get("shortNames", ()):
            found = defined.kubectl("get", f"{name}.{definition['spec']['group']}")
            assert found.returncode == 0, found.stderr


def _object(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "shown", "namespace": "default"}, "spec": spec}


def _row(cluster: Cluster, document: dict[str, Any], status: dict[str, Any]) -> dict[str, str]:
    """Store an object with its status, and return what `kubectl get -o wide` shows of it, but its age."""
    cluster.objects.apply(document)
    cluster.objects.patch(document, {"status": status}, subresource="status")
    table = cluster.objects.table(document)
    names = [each["name"] for each in table["columnDefinitions"]]
    (row,) = table["rows"]
    cells = zip(names, row["cells"], strict=True)
    return {name: "" if cell is None else cell for name, cell in cells if name != "Age"}
