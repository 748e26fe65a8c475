"""A real cluster as a source: what it has is in force, what fails closes only what it must."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.eventually import eventually
from tests.support.kubernetes.local_cluster import Cluster, running_cluster
from tools.kubernetes.built_programs import AbsentError
from tools.kubernetes.upstream_crds import find_crds

from authplane.core.names import ObjectName
from authplane.resources.loaded_resources import Loaded
from authplane.runtime.child_processes import owned_tasks
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import find_login
from authplane.sources.kubernetes.forbidden_kinds import REASON
from authplane.sources.runtime.read_cluster import ClusterPart, ClusterSource

pytestmark = [pytest.mark.real, pytest.mark.slow]

PROXY = """
apiVersion: projectcontour.io/v1
kind: HTTPProxy
metadata: {name: %s, namespace: %s, labels: {team: %s}}
spec:
  ingressClassName: %s
  virtualhost: {fqdn: %s.example, tls: {secretName: cert}}
  routes: [{services: [{name: web, port: 80}]}]
"""
SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: %s, namespace: %s}
type: %s
stringData: {tls.crt: a, tls.key: b}
"""


@pytest.fixture(scope="module")
def contour(cluster_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster with Contour's CRDs that tests restart."""
    try:
        files = [each for name in ("contour", "gateway-api") for each in find_crds(name)]
    except AbsentError as error:
        pytest.skip(f"There are no upstream CRDs here. {error}")
    with running_cluster(tmp_path_factory.mktemp("contour"), cluster_programs) as it:
        it.install_crds(files)
        yield it


@asynccontextmanager
async def _source(
    cluster: Cluster, *namespaces: str, token: str = "", state: Path | None = None, selector: str = ""
) -> AsyncIterator[ClusterSource]:
    login = find_login(cluster.kubeconfig_for(token) if token else cluster.kubeconfig, "", {})
    async with ApiClient(Credentials(login)) as client:
        part = ClusterPart(namespaces=namespaces, selector=selector)
        source = ClusterSource(client, part, loosen_after=0, state_dir=state)
        async with source.reading(lambda _done, _all: None), owned_tasks() as tasks:
            following = tasks.create_task(_follow(source))
            try:
                yield source
            finally:
                following.cancel()


async def _follow(source: ClusterSource) -> None:
    async for _ in source.changes():
        pass


def _proxies(source: ClusterSource) -> set[str]:
    return {str(name) for name in source.library.current().resources.proxies}


def _until(holds: Callable[[], bool]) -> Any:
    async def asked() -> bool:
        return holds()

    return eventually(asked)


def _namespace(cluster: Cluster, name: str) -> str:
    cluster.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


async def test_objects_come_change_and_go(contour: Cluster) -> None:
    space = _namespace(contour, "changes")
    contour.objects.create_all(
        PROXY % ("one", space, "a", "authplane", "one") + "---" + SECRET % ("cert", space, "Opaque")
    )
    contour.objects.create_all(SECRET % ("unused", space, "Opaque"))
    async with _source(contour, space) as source:
        loaded = source.library.current()
        assert set(loaded.resources.proxies) == {ObjectName(space, "one")}
        assert set(loaded.resources.secrets) == {ObjectName(space, "cert")}
        [two] = contour.objects.create_all(PROXY % ("two", space, "a", "authplane", "two"))
        await _until(lambda: _proxies(source) == {f"{space}/one", f"{space}/two"})
        contour.objects.patch(two, {"spec": {"virtualhost": {"tls": {"secretName": "unused"}}}})
        await _until(lambda: len(source.library.current().resources.secrets) == 2)
        contour.objects.delete(two)
        await _until(lambda: _proxies(source) == {f"{space}/one"})


async def test_classes_and_selectors_hide_what_is_not_ours(contour: Cluster) -> None:
    space = _namespace(contour, "classes")
    for name, team, ingress in (("ours", "a", "authplane"), ("theirs", "a", "contour"), ("other", "b", "authplane")):
        contour.objects.create_all(PROXY % (name, space, team, ingress, name))
    async with _source(contour, space, selector="team=a") as source:
        assert _proxies(source) == {f"{space}/ours"}
        settings = {"apiVersion": "projectcontour.io/v1alpha1", "kind": "ContourConfiguration"}
        spec = {"ingress": {"classNames": ["contour"]}}
        contour.objects.create({**settings, "metadata": {"name": "contour", "namespace": space}, "spec": spec})
        await _until(lambda: _proxies(source) == {f"{space}/theirs"})


async def test_a_forbidden_kind_closes_what_it_could_protect_and_the_rest_goes_on(contour: Cluster) -> None:
    space = _namespace(contour, "forbidden")
    contour.objects.create_all(PROXY % ("one", space, "a", "authplane", "three"))
    contour.objects.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "r", "namespace": space}}
    )
    groups = ["", "discovery.k8s.io", "projectcontour.io"]
    _grant(contour, space, [{"apiGroups": groups, "resources": ["*"], "verbs": ["list", "watch"]}])
    async with _source(contour, space, token=contour.service_account_token(space, "r")) as source:
        assert _proxies(source) == {f"{space}/one"}
        said = {each.place.file: each.problem.message for each in _forbidden(source.library.current())}
        assert (
            "This program may not list backendtlspolicies.gateway.networking.k8s.io in namespace forbidden"
            in (said["backendtlspolicies.gateway.networking.k8s.io"])
        )
        assert not [each for each in said if each.endswith("projectcontour.io")]
        # Kinds without a CRD are not there, whatever is permitted.
        assert not [each for each in said if each.endswith("x-k8s.io")]
        _grant(contour, space, [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list", "watch"]}], name="more")
        await _until(lambda: {each.place.file for each in _forbidden(source.library.current())} == {GATEWAY_CLASSES})


GATEWAY_CLASSES = "gatewayclasses.gateway.networking.k8s.io"
"""They are in no namespace, so that a Role cannot grant them."""


async def test_the_last_good_version_is_in_force_after_a_restart(contour: Cluster, tmp_path: Path) -> None:
    space = _namespace(contour, "kept")
    for name in ("gone", "fine"):
        contour.objects.create_all(PROXY % (name, space, "a", "authplane", f"{name}.kept"))
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "contour", "namespace": space}}
    contour.objects.create({**settings, "data": {"contour.yaml": "disablePermitInsecure: true"}})
    async with _source(contour, space, state=tmp_path / "state") as source:
        await source.keep()
    contour.objects.patch(settings, {"data": {"contour.yaml": "disablePermitInsecure: ["}})
    contour.objects.delete(contour.objects.get("projectcontour.io/v1", "HTTPProxy", "gone", space))
    async with _source(contour, space, state=tmp_path / "state") as source:
        loaded = source.library.current()
        assert _proxies(source) == {f"{space}/fine"}
        [file] = loaded.resources.contour_files.values()
        assert file.spec.httpproxy.disable_permit_insecure is True
        assert not loaded.resources.broken
        assert [str(each.place) for each in loaded.findings] == [f"configmaps/{space}/contour"]
    async with _source(contour, space) as source:  # nothing was kept, so what it may say closes what it could concern
        resources = source.library.current().resources
        assert (dict(resources.contour_files), len(resources.broken)) == ({}, 1)


async def test_an_api_server_that_is_away_changes_nothing_and_nothing_is_lost(contour: Cluster) -> None:
    space = _namespace(contour, "away")
    contour.objects.create_all(PROXY % ("one", space, "a", "authplane", "one.away"))
    async with _source(contour, space) as source:
        contour.stop_api_server()
        await _until(lambda: bool(source.troubles()))
        assert _proxies(source) == {f"{space}/one"}
        contour.start_api_server()
        contour.objects.create_all(PROXY % ("two", space, "a", "authplane", "two.away"))
        await _until(lambda: _proxies(source) == {f"{space}/one", f"{space}/two"})
        await _until(lambda: not [each for each in source.troubles() if "does not answer" in each])


async def test_nothing_is_in_force_before_the_first_list(contour: Cluster) -> None:
    space = _namespace(contour, "first")
    contour.objects.create_all(PROXY % ("one", space, "a", "authplane", "one.first"))
    contour.stop_api_server()
    entered = asyncio.Event()

    async def read() -> set[str]:
        async with _source(contour, space) as source:
            entered.set()
            return _proxies(source)

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await entered.wait()
        contour.start_api_server()
    assert reading.result() == {f"{space}/one"}


def _forbidden(loaded: Loaded) -> list[Any]:
    return [each for each in loaded.findings if each.problem.reason == REASON]


def _grant(cluster: Cluster, space: str, rules: list[dict[str, Any]], name: str = "r") -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": space},
    }
    cluster.objects.create({**role, "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "r", "namespace": space}]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    cluster.objects.create({**role, "kind": "RoleBinding", "roleRef": ref, "subjects": subjects})
