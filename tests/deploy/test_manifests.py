"""The plain manifests and the Helm chart: a real API server accepts them, and Pods have no rights on their nodes."""

import json
import re
import subprocess
from typing import Any, Final

import pytest
import yaml
from tests.deploy.installed_objects import VARIANTS, chart_objects, one, plain_objects, pod_templates
from tests.support.eventually import START_LIMIT
from tests.support.kubernetes.api_objects import Object, RefusedError
from tests.support.kubernetes.local_cluster import Cluster
from tools.kubernetes.built_programs import HELM, AbsentError, find_programs
from tools.kubernetes.manifests import CHART, NAMESPACE, PLAIN, ROOT, crd_files, rendered_files

STRICT: Final = {"dryRun": "All", "fieldValidation": "Strict"}


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Cluster:
    """Add our CRDs, and the namespace of the manifests."""
    cluster.install_crds([PLAIN / "crds.yaml"])
    cluster.objects.apply_all((PLAIN / "namespace.yaml").read_text(encoding="utf-8"))
    for name in ("shop", "tools"):
        cluster.objects.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return cluster


@pytest.mark.requirement("KI-1")
@pytest.mark.real
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_api_server_accepts_every_object_of_the_chart(site: Cluster, options: tuple[str, ...]) -> None:
    objects = [each for each in chart_objects(*options) if not each["apiVersion"].startswith("cert-manager.io/")]
    for each in objects:
        answer = site.objects.request("POST", site.objects.path(each, named=False), each, query=STRICT)
        assert answer.status_code == 201, answer.text
        assert "warning" not in answer.headers, answer.headers["warning"]
    assert len(objects) > 20


@pytest.mark.real
def test_kubectl_accepts_the_plain_manifests(site: Cluster) -> None:
    done = site.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(PLAIN))
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(plain_objects()) + 3


@pytest.mark.real
def test_the_api_server_refuses_a_field_that_does_not_exist(site: Cluster) -> None:
    wrong = one(plain_objects(), "Deployment", "authplane-control")
    wrong["spec"]["template"]["spec"]["containers"][0]["tty0"] = True
    with pytest.raises(RefusedError, match="unknown field"):
        site.objects.create(wrong, **STRICT)


@pytest.mark.requirement("KI-4")
@pytest.mark.real
def test_pods_satisfy_the_restricted_standard(site: Cluster) -> None:
    for name, template in pod_templates(plain_objects()):
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": "tried", "namespace": NAMESPACE}
        assert site.objects.create(pod, **STRICT)["metadata"]["name"] == "tried", name
    pod["spec"] = {**template["spec"], "hostNetwork": True}
    with pytest.raises(RefusedError, match="violates PodSecurity"):
        site.objects.create(pod, **STRICT)


@pytest.mark.requirement("KI-2")
@pytest.mark.real
def test_the_plain_manifests_are_the_chart_with_its_defaults() -> None:
    chart_objects()
    for path, text in rendered_files().items():
        assert path.read_text(encoding="utf-8") == text, "run: make manifests"


@pytest.mark.real
def test_the_crds_are_those_of_the_command() -> None:
    for path, text in crd_files().items():
        assert path.read_text(encoding="utf-8") == text, "run: make manifests"


def containers(template: Any) -> list[Object]:
    spec = template["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


@pytest.mark.requirement("KI-4")
def test_every_container_is_confined() -> None:
    for name, template in pod_templates(plain_objects()):
        assert template["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True, name
        for each in containers(template):
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "runAsNonRoot": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert each["resources"]["requests"].keys() == {"cpu", "memory"}, name


def test_long_running_pods_are_probed_spread_and_protected_from_disruption() -> None:
    objects = plain_objects()
    for component in ("control", "policy", "envoy"):
        spec = one(objects, "Deployment", f"authplane-{component}")["spec"]
        [container] = spec["template"]["spec"]["containers"]
        assert "readinessProbe" in container
        assert ("livenessProbe" in container) is (component != "envoy")
        spread = [each["topologyKey"] for each in spec["template"]["spec"]["topologySpreadConstraints"]]
        assert spread == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
        budget = one(objects, "PodDisruptionBudget", f"authplane-{component}")["spec"]
        assert budget["selector"] == spec["selector"]
        policy = one(objects, "NetworkPolicy", f"authplane-{component}")["spec"]
        assert policy["podSelector"] == spec["selector"]


def test_only_parts_that_use_the_api_get_a_token() -> None:
    mounted = {name: each["spec"]["automountServiceAccountToken"] for name, each in pod_templates(plain_objects())}
    assert {name.removeprefix("authplane-").split("-")[0].split()[0]: is_it for name, is_it in mounted.items()} == {
        "control": True,
        "policy": True,
        "envoy": False,
        "certificates": True,
    }


def test_scaled_deployments_have_no_fixed_size() -> None:
    objects = plain_objects()
    for component in ("policy", "envoy"):
        assert "replicas" not in one(objects, "Deployment", f"authplane-{component}")["spec"]
        scaler = one(objects, "HorizontalPodAutoscaler", f"authplane-{component}")["spec"]
        assert scaler["scaleTargetRef"]["name"] == f"authplane-{component}"


def test_versions_are_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = re.findall(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert [chart["version"]] == [chart["appVersion"]] == project


def test_every_value_is_described_and_checked() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert list(_differences(values, schema, "")) == []


def _differences(value: Any, schema: Any, path: str) -> Any:
    if not isinstance(value, dict) or "properties" not in schema:
        return
    if schema.get("additionalProperties") is not False:
        yield f"{path}: other names are accepted"
    for name in value.keys() ^ (schema["properties"].keys() - {"global"}):
        yield f"{path}.{name}: in one of values.yaml and values.schema.json only"
    for name in value.keys() & schema["properties"].keys():
        yield from _differences(value[name], schema["properties"][name], f"{path}.{name}")


WRONG_VALUES: Final = {
    "an unknown name": ("--set=envoy.replica=3", "additional properties 'replica' not allowed"),
    "an unknown kind": ("--set=envoy.kind=StatefulSet", "value must be one of 'Deployment', 'DaemonSet'"),
    "no port": ("--set=envoy.service.ports[0].port=0", "minimum"),
    "text for a number": ("--set-string=policy.replicas=two", "got string, want integer"),
    "an invalid namespace": ("--set=watch.namespaces={Shop}", "does not match pattern"),
}


@pytest.mark.real
@pytest.mark.parametrize(("option", "words"), WRONG_VALUES.values(), ids=WRONG_VALUES.keys())
def test_helm_refuses_wrong_values(option: str, words: str) -> None:
    with pytest.raises(AbsentError, match=re.escape(words)):
        chart_objects(option)


@pytest.mark.real
def test_helm_finds_no_fault() -> None:
    chart_objects()
    helm = str(find_programs(HELM)["helm"])
    done = subprocess.run(
        [helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False, timeout=START_LIMIT
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
def test_certificates_of_cert_manager_have_the_names_of_the_parts() -> None:
    objects = chart_objects("--set=tls.mode=cert-manager")
    made = {each["spec"]["secretName"]: each["spec"]["dnsNames"] for each in objects if each["kind"] == "Certificate"}
    built = one(plain_objects(), "CronJob", "authplane-certificates")
    [container] = built["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    named = dict(each.split("=") for each in container["args"] if not each.startswith("-"))
    assert made == {secret: [host] for secret, host in named.items()}
    assert not [each for each in objects if each["kind"] in {"Job", "CronJob"}]


@pytest.mark.real
def test_with_some_namespaces_no_part_reads_secrets_of_others() -> None:
    objects = chart_objects("--set=watch.namespaces={shop,tools}")
    bound = {each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"}
    roles = [each for each in objects if each["kind"] == "ClusterRole" and each["metadata"]["name"] in bound]
    assert len(roles) == 2
    assert "secrets" not in {name for role in roles for rule in role["rules"] for name in rule["resources"]}
    places = {each["metadata"]["namespace"] for each in objects if each["kind"] == "RoleBinding"}
    assert places == {"shop", "tools", NAMESPACE}
