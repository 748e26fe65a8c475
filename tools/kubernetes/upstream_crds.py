"""The CustomResourceDefinitions of other projects, from the archives of their Go modules.

They are large, and they are test data: nothing of them is in the repository.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tools.go_toolchain import NoGoError, cache_folder, find_go, locked
from tools.kubernetes.built_programs import AbsentError

_MODULE: Final = Path(__file__).parent / "go" / "crds"
_LIMIT: Final = 600.0
_FILES: Final[Mapping[str, tuple[str, str]]] = {
    "contour": ("github.com/projectcontour/contour", "examples/contour/01-crds.yaml"),
    "gateway-api": ("sigs.k8s.io/gateway-api", "config/crd/standard/gateway.*.yaml"),
    "gateway-api-experimental": ("sigs.k8s.io/gateway-api", "config/crd/experimental/gateway.*.yaml"),
    "agentic-networking": ("sigs.k8s.io/kube-agentic-networking", "k8s/crds/agentic.*.yaml"),
}
"""By the name that tests use: the module, and its files."""


def find_crds(name: str) -> tuple[Path, ...]:
    """Return the files with the CRDs of a project, without fetching anything; raises `AbsentError`."""
    found = tuple(sorted((_folder() / name).glob("*.yaml")))
    if not found:
        raise AbsentError(f"The CRDs of {name} are not fetched. Run make kubernetes.")
    return found


def fetch_crds() -> Path:
    """Fetch what is not there yet, and return its folder; raises `AbsentError`."""
    folder = _folder()
    with locked(folder):
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _folder() -> Path:
    content = hashlib.sha256((_MODULE / "go.sum").read_bytes() + repr(sorted(_FILES.items())).encode())
    return cache_folder() / "kubernetes" / f"crds-{content.hexdigest()[:12]}"


def _fetch(folder: Path) -> None:
    print("fetching the CRDs of Contour, Gateway API and kube-agentic-networking (once)", flush=True)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    archives = _archives()
    for name, (module, pattern) in _FILES.items():
        (unfinished / name).mkdir(parents=True)
        for path in sorted(archives[module].glob(pattern)):
            shutil.copyfile(path, unfinished / name / path.name)
    unfinished.rename(folder)


def _archives() -> Mapping[str, Path]:
    """Have Go fetch the modules and check them against go.sum; return by module where they are unpacked."""
    try:
        go = find_go()
        wanted: Any = json.loads(_run([str(go), "mod", "edit", "-json"]))["Require"]
        modules = [f"{each['Path']}@{each['Version']}" for each in wanted]
        said = _run([str(go), "mod", "download", "-json", *modules])
    except NoGoError as error:
        raise AbsentError(str(error)) from error
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        raise AbsentError(f"The CRDs cannot be fetched: {said}") from error
    found: dict[str, Path] = {}
    decoder = json.JSONDecoder()
    while said := said.strip():
        each, end = decoder.raw_decode(said)
        found[each["Path"]] = Path(each["Dir"])
        said = said[end:]
    return found


def _run(command: list[str]) -> str:
    return subprocess.run(command, cwd=_MODULE, check=True, capture_output=True, text=True, timeout=_LIMIT).stdout
