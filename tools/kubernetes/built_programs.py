"""Programs that are built once from a Go module of ours, which pins the modules that contain them."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.go_toolchain import NoGoError, cache_folder, find_go, locked

_MODULES: Final = Path(__file__).parent / "go"
_VERSIONS: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
"""Packages whose variables tell clients the version of the API server."""
_OFTEN: Final = 200
"""A line of progress is printed for so many packages."""
_LAST: Final = 8
"""How many lines of a failed command a message quotes."""


class AbsentError(Exception):
    """A program is not there or cannot be built; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One binary that a module of ours gives, and the names that start it."""

    module: str
    """Folder with go.mod, go.sum and perhaps main.go."""
    package: str = "."
    """Package to build; without main.go it is one of another module."""
    version: str
    """Of what is built, for people who look into the cache."""
    programs: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    """Programs that ``KUBE_ASSETS`` may lack."""
    variables: Mapping[str, str]
    """Variables of the program that the linker sets."""
    minutes: int
    """About how long two cores need, from empty caches."""

    def folder(self) -> Path:
        """Return where it is built: another folder for each change of what it is built from."""
        content = hashlib.sha256(repr(sorted(self.variables.items())).encode())
        for path in sorted((_MODULES / self.module).iterdir()):
            content.update(path.read_bytes())
        return cache_folder() / "kubernetes" / f"{self.module}-{self.version}-{content.hexdigest()[:12]}"


CLUSTER: Final = Build(
    module="cluster",
    version="v1.36.3",
    programs=("etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kubectl"),
    optional=frozenset({"kube-controller-manager", "kube-proxy"}),
    variables={
        f"{package}.{name}": value
        for package in _VERSIONS
        for name, value in (("gitVersion", "v1.36.3"), ("gitMajor", "1"), ("gitMinor", "36"), ("gitTreeState", "clean"))
    },
    minutes=10,
)
HELM: Final = Build(
    module="helm",
    package="helm.sh/helm/v3/cmd/helm",
    version="v3.22.0",
    programs=("helm",),
    variables={
        "helm.sh/helm/v3/internal/version.version": "v3.22.0",
        # The version of Kubernetes that Helm assumes if it renders without a cluster.
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor": "36",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor": "1",
        "helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor": "36",
    },
    minutes=4,
)


def find_programs(build: Build) -> Mapping[str, Path]:
    """Return the programs by name, without building anything; raises `AbsentError`."""
    given = os.environ.get("KUBE_ASSETS") if build is CLUSTER else None
    folder = Path(given).absolute() if given else build.folder()
    found = {name: folder / name for name in build.programs if (folder / name).is_file()}
    missing = sorted(set(build.programs) - found.keys() - build.optional)
    if missing and given:
        raise AbsentError(
            f'KUBE_ASSETS is "{given}", which lacks {", ".join(missing)}. Add them, or unset KUBE_ASSETS.'
        )
    if missing:
        raise AbsentError(f"Not built: {', '.join(missing)}. Run make kubernetes.")
    return found


def build_programs(build: Build) -> Path:
    """Build what is not built yet, and return its folder; raises `AbsentError`."""
    folder = build.folder()
    with locked(folder):
        if not folder.is_dir():
            try:
                _build(build, folder, find_go())
            except NoGoError as error:
                raise AbsentError(str(error)) from error
    return folder


def _build(build: Build, folder: Path, go: Path) -> None:
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    binary = build.programs[0] if len(build.programs) == 1 else build.module
    flags = [
        "-s",
        "-w",
        *(word for name, value in sorted(build.variables.items()) for word in ("-X", f"{name}={value}")),
    ]
    command = [str(go), "build", "-v", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", " ".join(flags)]
    print(
        f"building {', '.join(build.programs)} {build.version} from Go modules (once; about {build.minutes} minutes)",
        flush=True,
    )
    last: list[str] = []
    for count, line in enumerate(
        _lines([*command, "-o", str(unfinished / binary), build.package], _MODULES / build.module), 1
    ):
        last = [*last[-_LAST:], line]
        if count % _OFTEN == 0:
            print(f"  {count} packages and modules, now {line}", flush=True)
    if not (unfinished / binary).is_file():
        raise AbsentError(f"go build failed: {' | '.join(last)}")
    for name in set(build.programs) - {binary}:
        (unfinished / name).symlink_to(binary)
    unfinished.rename(folder)


def _lines(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Run Go with what it has cached so far, and return what it prints."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    polite = [nice, "-n", "5"] if (nice := shutil.which("nice")) else []
    with subprocess.Popen(
        [*polite, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        for line in process.stdout or ():
            yield line.strip()
