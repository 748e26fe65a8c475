"""The reflector against the real API server, beside the informer of the official client: same churn, same objects."""

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.eventually import eventually
from tests.support.kubernetes.api_objects import Object
from tests.support.kubernetes.local_cluster import Cluster, running_cluster

from authplane.runtime.child_processes import owned_tasks
from authplane.runtime.kubernetes.api_client import ApiClient
from authplane.runtime.kubernetes.api_credentials import Credentials
from authplane.runtime.kubernetes.kubeconfig import find_login
from authplane.sources.kubernetes.api_kinds import ApiKind
from authplane.sources.kubernetes.reflector import Changes, Reflector, Scope
from authplane.sources.kubernetes.reflector_steps import Forbidden, Gone, Listed, Put
from authplane.sources.runtime.follow_kind import follow_kind

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def restarted(cluster_programs: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster that is restarted by tests. Its programs end with the thread that starts them, so that is ours."""
    with running_cluster(tmp_path_factory.mktemp("restarted"), cluster_programs) as it:
        yield it


_CLIENT = Path(sys.prefix) / "kubernetes-client"
CONFIG_MAPS = ApiKind(group="", versions=("v1",), plural="configmaps", kind="ConfigMap")


class Store:
    """What a reflector said."""

    def __init__(self, reflector: Reflector) -> None:
        self.reflector = reflector
        self.objects: dict[str, str] = {}

    def take(self, _: Reflector, changes: Changes) -> None:
        for change in changes:
            match change:
                case Put(name, thing):
                    self.objects[name.name] = thing["data"]["n"]
                case Gone(name):
                    self.objects.pop(name.name, None)


@asynccontextmanager
async def _followed(cluster: Cluster, store: Store, token: str = "") -> AsyncIterator[None]:
    login = find_login(cluster.kubeconfig_for(token) if token else cluster.kubeconfig, "", {})
    async with ApiClient(Credentials(login)) as client, owned_tasks() as tasks:
        task = tasks.create_task(follow_kind(store.reflector, client, store.take))
        try:
            yield
        finally:
            task.cancel()


def _config_map(namespace: str, name: str, n: int) -> Object:
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"n": str(n)}}


def _churn(cluster: Cluster, namespace: str, seed: int, changes: int) -> dict[str, str]:
    """Create, change and delete; return what there is."""
    random, there = Random(seed), dict[str, str]()  # noqa: S311 (no secret)
    for n in range(changes):
        name = f"o{random.randrange(12)}"
        made = _config_map(namespace, name, n)
        if name in there and random.random() < 0.4:
            cluster.objects.delete(made)
            del there[name]
        else:
            cluster.objects.apply(made)
            there[name] = str(n)
    return there


@pytest.mark.slow
@pytest.mark.parametrize("streaming", [True, False])
async def test_no_change_is_lost_over_a_compaction_and_a_restart(restarted: Cluster, streaming: bool) -> None:
    cluster, namespace = restarted, _namespace(restarted, f"streaming-{streaming}".lower())
    store = Store(Reflector(CONFIG_MAPS, Scope(namespace=namespace), page=5, streaming=streaming))
    cluster.objects.apply(_config_map(namespace, "early", 0))
    async with _followed(cluster, store):
        await eventually(_is(store, {"early": "0"}))
        there = {"early": "0"} | await asyncio.to_thread(_churn, cluster, namespace, 1, 60)
        await eventually(_is(store, there))
        cluster.stop_api_server()
        await eventually(_troubled(store))
        assert (store.objects, store.reflector.standing) == (there, Listed())
        cluster.start_api_server()
        cluster.objects.delete(_config_map(namespace, "early", 0))
        there = await asyncio.to_thread(_churn, cluster, namespace, 2, 60)
        cluster.compact()
        cluster.restart_api_server()
        await eventually(_listed(cluster, namespace, store))


@pytest.mark.slow
async def test_the_official_informer_ends_with_the_same_objects(restarted: Cluster) -> None:
    cluster, namespace = restarted, _namespace(restarted, "informer")
    store = Store(Reflector(CONFIG_MAPS, Scope(namespace=namespace)))
    async with _followed(cluster, store):
        with _informer(cluster, namespace) as informer:
            for seed in (3, 4):
                await asyncio.to_thread(_churn, cluster, namespace, seed, 60)
                cluster.restart_api_server()
                await eventually(_listed(cluster, namespace, store))
                await eventually(_same(informer, store))


async def test_a_user_without_permission_is_told_the_verb_and_goes_on_when_it_is_granted(
    cluster: Cluster, namespace: str
) -> None:
    cluster.objects.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _meta(namespace, "reader")})
    token = cluster.service_account_token(namespace, "reader")
    store = Store(Reflector(CONFIG_MAPS, Scope(namespace=namespace)))
    async with _followed(cluster, store, token):

        async def forbidden() -> bool:
            return store.reflector.standing == Forbidden("list")

        await eventually(forbidden)
        rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": _meta(namespace, "reader")}
        cluster.objects.create({**role, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
        cluster.objects.create({**role, "kind": "RoleBinding", "roleRef": ref, "subjects": [subject]})
        cluster.objects.apply(_config_map(namespace, "one", 1))
        await eventually(_is(store, {"one": "1"}))
        assert store.reflector.standing == Listed()


def _namespace(cluster: Cluster, name: str) -> str:
    cluster.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def _meta(namespace: str, name: str) -> dict[str, str]:
    return {"name": name, "namespace": namespace}


def _is(store: Store, there: dict[str, str]) -> Any:
    async def holds() -> bool:
        return store.objects == there and store.reflector.standing == Listed()

    return holds


def _troubled(store: Store) -> Any:
    async def holds() -> bool:
        return bool(store.reflector.trouble)

    return holds


def _listed(cluster: Cluster, namespace: str, store: Store) -> Any:
    async def holds() -> bool:
        listed = cluster.objects.listed("v1", "ConfigMap", namespace)["items"]
        return store.objects == {each["metadata"]["name"]: each["data"]["n"] for each in listed}

    return holds


def _same(informer: Any, store: Store) -> Any:
    async def holds() -> bool:
        return {each.metadata.name: each.data["n"] for each in informer.cache.list()} == store.objects

    return holds


@contextmanager
def _informer(cluster: Cluster, namespace: str) -> Iterator[Any]:
    # Its packages are apart from ours, and after them.
    if not _CLIENT.is_dir():
        pytest.skip("The official client is not installed. Run make test.")
    if str(_CLIENT) not in sys.path:
        sys.path.append(str(_CLIENT))
    client = importlib.import_module("kubernetes.client")
    informers = importlib.import_module("kubernetes.informer")
    configuration = client.Configuration(host=cluster.url)
    configuration.ssl_ca_cert = str(cluster.ca_file)
    configuration.api_key = {"authorization": f"Bearer {cluster.token}"}
    api = client.CoreV1Api(client.ApiClient(configuration))
    informer = informers.SharedInformer(list_func=api.list_namespaced_config_map, namespace=namespace)
    informer.start()
    try:
        yield informer
    finally:
        informer.stop()
