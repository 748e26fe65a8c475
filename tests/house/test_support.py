"""What tests share is one package, and no test takes a whole world out of a module."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
SUPPORT: Final = TESTS / "support"
MOST_NAMES: Final = 12


def _name(path: Path) -> str:
    return ".".join(path.relative_to(TESTS.parent).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Return what a file takes from modules of the tests."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("tests."):
            yield node.module, [each.name for each in node.names]


FILES: Final = {_name(path): path for path in sorted(TESTS.rglob("*.py"))}


def test_a_test_takes_few_names_from_each_module() -> None:
    greedy = [
        f"{name} takes {len(names)} names from {module}"
        for name, path in FILES.items()
        if path.name.startswith(("test_", "conftest"))
        for module, names in _imports(path)
        if len(names) > MOST_NAMES
    ]
    assert not greedy, "\n".join([f"more than {MOST_NAMES}; split the module by what it is for:", *greedy])


def test_what_several_folders_use_is_in_support() -> None:
    users: dict[str, set[Path]] = {}
    for path in FILES.values():
        for module, names in _imports(path):
            for each in {module, *(f"{module}.{name}" for name in names)} & FILES.keys():
                users.setdefault(each, set()).add(path)
    strays = [
        f"{module} is used by {user.relative_to(TESTS)}"
        for module, found in users.items()
        if SUPPORT not in FILES[module].parents and not FILES[module].name.startswith(("test_", "conftest"))
        for user in found
        if FILES[module].parent not in user.parents and FILES[module].parents[1] != TESTS.parent
    ]
    assert not strays, "\n".join(["move it to tests/support:", *strays])


def test_the_package_says_what_is_where() -> None:
    page = ast.get_docstring(ast.parse((SUPPORT / "__init__.py").read_text(encoding="utf-8"))) or ""
    parts = {path.stem for path in SUPPORT.glob("*.py")} | {path.parent.name for path in SUPPORT.glob("*/__init__.py")}
    assert {each for each in parts - {"__init__", "support"} if f"``{each}``" not in page} == set()


def test_every_part_says_what_it_is_for() -> None:
    silent = [
        name for name, path in FILES.items() if SUPPORT in path.parents
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]  # fmt: skip
    assert silent == []
