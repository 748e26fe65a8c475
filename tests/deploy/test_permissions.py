"""The permissions in the manifests: each part may do what its code does, and a real API server refuses the rest."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest
from tests.deploy.installed_objects import one, plain_objects
from tests.support.kubernetes.local_cluster import Cluster
from tools.kubernetes.manifests import NAMESPACE, PLAIN

from authplane.devkit.diagnosis.cluster_permissions import Component, needed_permissions
from authplane.sources.kubernetes.api_kinds import api_kinds


class Access(NamedTuple):
    """A verb on a resource of an API group, in every namespace unless one is named."""

    group: str
    resource: str
    verb: str
    namespace: str = ""


def needed(component: Component) -> frozenset[Access]:
    """Return what a part does in a cluster that has every kind."""
    kinds = [each.resource for each in api_kinds()]
    found = needed_permissions(component, kinds, (), NAMESPACE)
    return frozenset(Access(each.group, each.resource, each.verb, each.namespace) for each in found)


CONTROL: Final = needed(Component.CONTROL)
POLICY: Final = needed(Component.POLICY)
NEEDED: Final = {"control": CONTROL, "policy": POLICY}

REFUSED: Final = (
    *(Access("", "secrets", verb) for verb in ("create", "update", "patch", "delete", "deletecollection")),
    *(Access("", "configmaps", verb) for verb in ("create", "update", "patch", "delete")),
    Access("", "serviceaccounts/token", "create"),
    Access("", "pods", "get"),
    Access("", "pods/exec", "create"),
    Access("", "nodes", "get"),
    Access("", "users", "impersonate"),
    Access("apps", "deployments", "patch"),
    Access("rbac.authorization.k8s.io", "clusterroles", "bind"),
    Access("rbac.authorization.k8s.io", "clusterroles", "escalate"),
    Access("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
    Access("projectcontour.io", "httpproxies", "patch"),
    Access("projectcontour.io", "httpproxies/status", "update"),
    Access("agentic.networking.x-k8s.io", "accesspolicies", "update"),
    Access("agentic.networking.x-k8s.io", "accesspolicies", "delete"),
    Access("coordination.k8s.io", "leases", "update", "kube-system"),
    Access("apiextensions.k8s.io", "customresourcedefinitions", "update"),
)


def granted(component: str) -> frozenset[Access]:
    """Return what the rules of the manifests grant to a part, one by one."""
    objects = plain_objects()
    found = set()
    for each in objects:
        if each["kind"] not in {"ClusterRoleBinding", "RoleBinding"}:
            continue
        [subject] = each["subjects"]
        if subject["name"] != f"authplane-{component}":
            continue
        role = one(objects, each["roleRef"]["kind"], each["roleRef"]["name"])
        namespace = each["metadata"].get("namespace", "")
        found |= {access._replace(namespace=namespace) for rule in role["rules"] for access in _accesses(rule)}
    return frozenset(found)


def _accesses(rule: Mapping[str, Any]) -> Iterator[Access]:
    assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield from (Access(group, resource, verb) for verb in rule["verbs"])


@pytest.mark.requirement("KI-3")
@pytest.mark.parametrize("component", NEEDED)
def test_a_part_may_do_what_its_code_does_and_no_more(component: str) -> None:
    # A rule names all groups of agentic networking, in which some kinds do not exist.
    known = {(kind.group, kind.plural) for kind in api_kinds()}
    real = {
        each
        for each in granted(component)
        if not each.group.startswith("agentic.") or (each.group, each.resource.partition("/")[0]) in known
    }
    assert real == NEEDED[component]


def test_envoy_may_do_nothing() -> None:
    assert granted("envoy") == frozenset()


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Cluster]:
    """Apply the accounts and roles of the manifests, and delete them afterwards."""
    cluster.objects.apply_all((PLAIN / "namespace.yaml").read_text(encoding="utf-8"))
    ours = [each for each in plain_objects() if each["kind"] == "ServiceAccount" or "rbac." in each["apiVersion"]]
    for each in ours:
        cluster.objects.apply(each)
    yield cluster
    for each in ours:
        cluster.objects.delete(each)


@pytest.mark.requirement("KI-3")
@pytest.mark.real
@pytest.mark.parametrize("component", ["control", "policy", "envoy", "certificates"])
def test_the_api_server_grants_and_refuses(site: Cluster, component: str) -> None:
    user = site.as_user(site.service_account_token(NAMESPACE, f"authplane-{component}"))

    def is_allowed(access: Access) -> bool:
        resource, _, subresource = access.resource.partition("/")
        asked = {
            "group": access.group,
            "resource": resource,
            "subresource": subresource,
            "verb": access.verb,
            "namespace": access.namespace,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        answer = user.create({**review, "spec": {"resourceAttributes": asked}})
        return bool(answer["status"]["allowed"])

    needed = NEEDED.get(component, frozenset())
    everything = CONTROL | POLICY
    assert {each for each in everything if is_allowed(each)} == needed
    assert [each for each in REFUSED if is_allowed(each)] == []
    user.close()
