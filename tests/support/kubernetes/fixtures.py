"""Fixtures for tests with Kubernetes; ``tests/conftest.py`` brings them to every folder.

A test that uses them is marked ``real``. It is skipped, with the reason, where the programs are not built.
"""

from collections.abc import Generator, Iterator, Mapping
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from tests.support.kubernetes.local_cluster import Cluster, running_cluster
from tools.kubernetes.built_programs import CLUSTER, AbsentError, find_programs
from tools.kubernetes.upstream_crds import find_crds

_NUMBERS: Final = count(1)
_ABSENT: Final = "There is no test cluster here."


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give all tests without a cluster one place, so that the summary says once why they are skipped."""
    report = yield
    match report.longrepr:
        case (_, _, str(reason)) if _ABSENT in reason:
            report.longrepr = (__file__, 1, reason)
        case _:
            pass
    return report


@pytest.fixture(scope="session")
def cluster_programs() -> Mapping[str, Path]:
    """Find the programs of a cluster, for a test that runs one of its own."""
    try:
        return find_programs(CLUSTER)
    except AbsentError as error:
        pytest.skip(f"{_ABSENT} {error}")


@pytest.fixture(scope="session")
def cluster(cluster_programs: Mapping[str, Path]) -> Iterator[Cluster]:
    """Run a cluster that all tests share; a test changes nothing but its own objects."""
    with (
        TemporaryDirectory(prefix="authplane-cluster-") as folder,
        running_cluster(Path(folder), cluster_programs) as it,
    ):
        yield it


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """Create a namespace for one test, and delete its objects afterwards."""
    name = f"test-{next(_NUMBERS)}"
    cluster.objects.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    cluster.objects.clear(name)


@pytest.fixture(scope="session")
def controllers(cluster: Cluster, cluster_programs: Mapping[str, Path]) -> Cluster:
    """Add controllers that collect garbage, delete namespaces and create ServiceAccounts."""
    if "kube-controller-manager" not in cluster_programs:
        pytest.skip("KUBE_ASSETS has no kube-controller-manager. Add it, or unset KUBE_ASSETS.")
    cluster.start_controllers()
    return cluster


@pytest.fixture(scope="session")
def upstream_crds(cluster: Cluster) -> Cluster:
    """Add the CRDs of Contour, of Gateway API (standard channel) and of kube-agentic-networking."""
    try:
        files = [each for name in ("contour", "gateway-api", "agentic-networking") for each in find_crds(name)]
    except AbsentError as error:
        pytest.skip(f"{_ABSENT} {error}")
    cluster.install_crds(files)
    return cluster
