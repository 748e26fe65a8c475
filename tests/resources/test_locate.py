"""Where fields stand."""

import pytest

from authplane.core.problems import Path
from authplane.resources.yaml.locate import locate
from authplane.resources.yaml.nodes import parse_nodes

TEXT = """\
metadata:
  name: web
spec:
  routes:
    - services:
        - name: a
          port: 80
    - {}
"""

PLACES: dict[Path, tuple[int, int]] = {
    (): (1, 1),
    ("metadata", "name"): (2, 3),
    ("spec", "routes", 0): (5, 7),
    ("spec", "routes", 0, "services", 0, "port"): (7, 11),
    ("spec", "routes", 0, "services", 0, "weight"): (6, 11),
    ("spec", "routes", 1, "services"): (8, 7),
    ("spec", "routes", 2): (4, 3),
    ("spec", "virtualhost", "fqdn"): (3, 1),
    ("spec", 0): (3, 1),
    ("metadata", "name", "x"): (2, 3),
}


@pytest.mark.parametrize(("path", "want"), PLACES.items(), ids=map(str, PLACES))
def test_a_field_or_the_nearest_thing_around_it(path: Path, want: tuple[int, int]) -> None:
    root = parse_nodes(TEXT).root
    assert root is not None
    assert locate(root, path) == want
