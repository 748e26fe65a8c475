"""Writes the plain manifests in ``deploy/kubernetes``: the Helm chart with its default values, and our CRDs.

The chart and the kinds are the sources. ``python -m tools.kubernetes.manifests`` writes the files, and a test compares.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tools.kubernetes.built_programs import HELM, AbsentError, find_programs

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "authplane"
PLAIN: Final = ROOT / "deploy" / "kubernetes"
NAMESPACE: Final = "authplane-system"
"""The namespace of the plain manifests; a chart takes that of its release."""
_LIMIT: Final = 120.0
_NOTE: Final = "# Written by `make manifests`. Edit {source} instead.\n"


def main() -> int:
    """Write all files."""
    try:
        files = {**rendered_files(), **crd_files()}
    except AbsentError as error:
        print(f"make: {error}", file=sys.stderr)
        return 1
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


def rendered_files() -> Mapping[Path, str]:
    """Return the files that the chart gives; raises `AbsentError` without Helm."""
    text = re.sub(r"^# Source: .*\n", "", render_chart(), flags=re.MULTILINE)
    return {PLAIN / "authplane.yaml": _NOTE.format(source="deploy/helm/authplane") + text}


def crd_files() -> Mapping[Path, str]:
    """Return the files with our CRDs."""
    printed = _run([str(Path(sys.executable).parent / "authplane"), "crds"])
    text = _NOTE.format(source="src/authplane/resources/kinds") + printed
    return {PLAIN / "crds.yaml": text, CHART / "crds" / "authplane.yaml": text}


def render_chart(*options: str) -> str:
    """Return the objects of the chart as YAML; raises `AbsentError` without Helm."""
    helm = find_programs(HELM)["helm"]
    return _run([str(helm), "template", "authplane", str(CHART), "--namespace", NAMESPACE, *options])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LIMIT)
    if done.returncode:
        raise AbsentError(f"{Path(command[0]).name} {command[1]} failed: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
