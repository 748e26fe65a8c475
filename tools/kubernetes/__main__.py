"""``python -m tools.kubernetes`` builds what is not built yet; its exit status tells whether all of it is there."""

import os
import sys
from collections.abc import Callable, Mapping

from tools.kubernetes.built_programs import CLUSTER, HELM, AbsentError, build_programs, find_programs
from tools.kubernetes.upstream_crds import fetch_crds


def main() -> int:
    """Build each part; a part that cannot be built does not stop the others."""
    missing = 0
    parts: Mapping[str, Callable[[], object]] = {
        "The test cluster": lambda: (
            find_programs(CLUSTER) if os.environ.get("KUBE_ASSETS") else build_programs(CLUSTER)
        ),
        "The set of upstream CRDs": fetch_crds,
        "Helm": lambda: build_programs(HELM),
    }
    for part, make in parts.items():
        try:
            make()
        except AbsentError as error:
            print(f"{part} is not available, and tests that need it are skipped. {error}", file=sys.stderr, flush=True)
            missing += 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
