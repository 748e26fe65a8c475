"""Where fields stand."""

import pytest

from authplane.core.problems import Inside, Path
from authplane.resources.yaml.locate import locate, locate_inside
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


EXPRESSION = "a.b == 'x' && wrong(c)"
WRITTEN = {
    "plain": ("cel: a.b == 'x' && wrong(c) # why\n", (1, 20)),
    "in single quotes": ("cel: 'a.b == ''x'' && wrong(c)'\n", (1, 23)),
    "in double quotes": ("""cel: "a.b == 'x' && wrong(c)"\n""", (1, 21)),
    "in a flow mapping": ("x: [{cel: \"a.b == 'x' && wrong(c)\"}]\n", (1, 26)),
    "a block": ("cel: |-\n    a.b == 'x' && wrong(c)\n", (2, 19)),
    "a block with a comment": ("cel: |- # why\n  a.b == 'x' && wrong(c)\n", (2, 17)),
    "a folded block": ("cel: >-\n  a.b == 'x'\n  && wrong(c)\n", (3, 6)),
    "plain over several lines": ("cel: a.b ==\n    'x'\n    && wrong(c)\n", (3, 8)),
    "quoted over several lines": ("cel: \"a.b\n    == 'x' &&\n    wrong(c)\"\n", (3, 5)),
    "behind other documents' lines": ("a: |\n  ' \"\ncel: |-\n  a.b == 'x' && wrong(c)\n", (4, 17)),
    "with settings": ("cel:\n  message: no\n  expression: >-\n    a.b == 'x' &&\n    wrong(c)\n", (5, 5)),
    "an escape that changes the length": ('cel: "a.b == \\u0027x\' && wrong(c)"\n', None),
}


@pytest.mark.parametrize(("text", "want"), WRITTEN.values(), ids=WRITTEN.keys())
def test_a_character_of_an_expression(text: str, want: tuple[int, int] | None) -> None:
    root = parse_nodes(text).root
    assert root is not None
    path: Path = ("x", 0, "cel") if text.startswith("x") else ("cel",)
    assert locate_inside(text, root, path, Inside(1, EXPRESSION.index("wrong") + 1)) == want


def test_a_character_on_another_line_of_a_block_and_the_end() -> None:
    text = "cel: |\n  a &&\n\n    b &&\n"
    root = parse_nodes(text).root
    assert root is not None
    assert locate_inside(text, root, ("cel",), Inside(3, 3)) == (4, 5)
    # The end of the expression is behind its last character.
    assert locate_inside(text, root, ("cel",), Inside(4, 1)) == (4, 9)
    assert locate_inside(text, root, ("other",), Inside(1, 1)) is None
    assert locate_inside(text, root, (), Inside(1, 1)) is None
