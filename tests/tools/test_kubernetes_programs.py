"""How the programs for tests with Kubernetes are found and built."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.support.eventually import START_LIMIT
from tests.support.pages import ROOT
from tools.go_toolchain import LEAST, find_go
from tools.kubernetes.built_programs import CLUSTER, HELM, AbsentError, Build, build_programs, find_programs

GO: Final = """#!/bin/sh
case "$1" in env) echo go9.9.9; exit;; esac
echo "$*" >> "$CALLED"
[ -z "$FAULT" ] || { echo "$FAULT" >&2; exit 1; }
for _ in $(seq 400); do echo example.com/package >&2; done
while [ "$1" != -o ]; do shift; done
echo '#!/bin/sh' > "$2"
"""
"""Stands in for Go: notes how it was called, names packages, and writes an empty program."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a cache of its own, and a Go that precedes others on the path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "go").write_text(GO, encoding="ascii")
    (tmp_path / "bin" / "go").chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    monkeypatch.delenv("KUBE_ASSETS", raising=False)
    monkeypatch.delenv("FAULT", raising=False)
    return tmp_path


def test_programs_that_are_not_built_are_missing_with_what_to_do(place: Path) -> None:
    with pytest.raises(AbsentError, match=r"^Not built: etcd, kube-apiserver, kubectl\. Run make kubernetes\.$"):
        find_programs(CLUSTER)


@pytest.mark.real
def test_programs_are_built_once_and_the_progress_is_shown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = build_programs(CLUSTER)
    assert build_programs(CLUSTER) == folder
    assert folder.parent == place / "cache" / "authplane" / "kubernetes"
    assert find_programs(CLUSTER) == {name: folder / name for name in CLUSTER.programs}
    [called] = (place / "called").read_text(encoding="ascii").splitlines()
    assert called.startswith("build -v -mod=readonly -buildvcs=false -trimpath -ldflags -s -w -X ")
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:] == [f"  {count} packages and modules, now example.com/package" for count in (200, 400)]


@pytest.mark.real
def test_a_build_that_fails_leaves_nothing_that_looks_complete(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT", "no such module")
    with pytest.raises(AbsentError, match=r"^go build failed: no such module$"):
        build_programs(CLUSTER)
    with pytest.raises(AbsentError):
        find_programs(CLUSTER)
    monkeypatch.delenv("FAULT")
    build_programs(CLUSTER)
    assert find_programs(CLUSTER).keys() == set(CLUSTER.programs)


@pytest.mark.real
def test_two_builders_build_once(place: Path) -> None:
    build = "from tools.kubernetes.built_programs import *; build_programs(CLUSTER)"
    both = [subprocess.Popen([sys.executable, "-c", build], cwd=ROOT) for _ in range(2)]
    assert [each.wait(timeout=START_LIMIT) for each in both] == [0, 0]
    assert len((place / "called").read_text(encoding="ascii").splitlines()) == 1


def test_another_version_has_another_folder() -> None:
    other = Build(module="cluster", version=CLUSTER.version, programs=CLUSTER.programs, variables={}, minutes=1)
    assert other.folder() != CLUSTER.folder()
    assert re.fullmatch(r"cluster-v1\.36\.3-[0-9a-f]{12}", CLUSTER.folder().name)


def test_kube_assets_names_a_folder_with_programs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBE_ASSETS", str(place / "given"))
    (place / "given").mkdir()
    (place / "given" / "etcd").touch()
    with pytest.raises(AbsentError, match=r"lacks kube-apiserver, kubectl\. Add them, or unset KUBE_ASSETS\.$"):
        find_programs(CLUSTER)
    (place / "given" / "kube-apiserver").touch()
    (place / "given" / "kubectl").touch()
    assert find_programs(CLUSTER).keys() == {"etcd", "kube-apiserver", "kubectl"}


@pytest.mark.real
def test_a_machine_that_cannot_build_is_told_so_once_for_each_part(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.kubernetes"],
        cwd=ROOT,
        env=os.environ | {"FAULT": "dial tcp: no route to host"},
        capture_output=True,
        text=True,
        check=False,
        timeout=START_LIMIT,
    )
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert said[0] == (
        "The test cluster is not available, and tests that need it are skipped. "
        "go build failed: dial tcp: no route to host"
    )
    assert all("is not available, and tests that need it are skipped." in each for each in said)


@pytest.mark.real
def test_a_go_that_is_new_enough_is_used(place: Path) -> None:
    assert LEAST == (1, 26)
    assert find_go() == place / "bin" / "go"


def test_versions_are_those_of_the_modules() -> None:
    helm = (ROOT / "tools" / "kubernetes" / "go" / "helm" / "go.mod").read_text(encoding="utf-8")
    assert f"helm.sh/helm/v3 {HELM.version} " in helm
    module = (ROOT / "tools" / "kubernetes" / "go" / "cluster" / "go.mod").read_text(encoding="utf-8")
    assert f"k8s.io/kubernetes {CLUSTER.version}\n" in module
    assert set(CLUSTER.variables.values()) >= {CLUSTER.version}
    staged = re.findall(r"^\t(k8s\.io/\S+) => \1 v0\.(\S+)$", module, re.MULTILINE)
    assert len(staged) > 25
    assert {version for _, version in staged} == {CLUSTER.version.removeprefix("v1.")}


@pytest.mark.real
@pytest.mark.slow
def test_without_a_cluster_its_tests_are_skipped_with_one_line(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/tools/test_local_cluster.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=START_LIMIT,
    )
    assert done.returncode == 0, done.stdout
    [line] = [each for each in done.stdout.splitlines() if each.startswith("SKIPPED")]
    assert line.endswith(
        "There is no test cluster here. Not built: etcd, kube-apiserver, kubectl. Run make kubernetes."
    )
    assert "passed" not in done.stdout
