"""Code has callers: every function, class and constant of a module leads to something that runs without the tests.

What counts are imports between modules and names within one. Methods and fields are not looked at, nor is the public
interface in ``authplane.grpc``, whose callers are programs of users.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
CALLERS: Final = ("src", "bench", "examples", "tools")
PUBLIC: Final = "authplane.grpc"

LATER: Final[Mapping[str, frozenset[str]]] = {
    # CEL-11: the contract has it, and says that no filter of ours uses it.
    "authplane.matching.expressions.wire": frozenset({"parse_extraction"}),
}
"""What is meant to wait for its caller, and why."""


@cache
def modules(folder: Path) -> Mapping[str, ast.Module]:
    """Return the modules below a folder by their dotted names."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def imported() -> Mapping[str, set[str]]:
    """Return by module what is imported from it, without the tests."""
    return taken(tree for folder in CALLERS for tree in modules(ROOT / folder).values())


def taken(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Return by module what others import from it, or name in texts such as ``cli.run:run``."""
    found: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        aliases: dict[str, str] = {}
        nodes = [*ast.walk(tree)]
        for node in nodes:
            match node:
                case ast.ImportFrom(module=str(module), names=names):
                    found[module].update(each.name for each in names)
                    aliases |= {each.asname or each.name: f"{module}.{each.name}" for each in names}
                case ast.Constant(value=str(text)) if named := re.fullmatch(r"([\w.]+):(\w+)", text):
                    found[named[1]].add(named[2])
                case _:
                    pass
        for node in nodes:
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attr) if name in aliases:
                    found[aliases[name]].add(attr)
                case _:
                    pass
    return found


def uncalled(tree: ast.Module, roots: Iterable[str]) -> set[str]:
    """Return the names of a module that neither its roots nor what it runs when it is imported lead to."""
    uses: dict[str, set[str]] = {}
    reached: set[str] = set()
    ahead = set(roots)
    for statement in tree.body:
        nodes = [*ast.walk(statement)]
        loaded = {each.id for each in nodes if isinstance(each, ast.Name)}
        # Annotations may be texts. Docstrings call nothing.
        said = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
        texts = [each for each in nodes if isinstance(each, ast.Constant) and id(each) not in said]
        loaded.update(word for each in texts for word in re.findall(r"[A-Za-z_]\w*", str(each.value)))
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if any(
                isinstance(each, ast.Call) for each in statement.decorator_list
            ):
                ahead.add(name)  # its decorator keeps it: a command, a tool
                uses[name] = loaded
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                uses[name] = loaded
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                uses[name] = loaded - {name}
            case _:
                ahead |= loaded
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead |= uses.get(name, set()) - reached
    return {name for name in uses if name not in reached and not name.startswith("__")}


def test_everything_has_a_caller_outside_of_tests() -> None:
    found, alone = imported(), {}
    for name, tree in modules(ROOT / "src").items():
        if name == PUBLIC or name.startswith(f"{PUBLIC}."):
            continue
        below_cli = name.removeprefix("authplane.cli.")
        roots = found.get(name, set()) | found.get(below_cli, set()) | LATER.get(name, frozenset())
        if names := uncalled(tree, roots):
            alone[name] = sorted(names)
    assert alone == {}, "delete what only tests call, or say in LATER what it waits for"


def test_what_waits_for_its_caller_is_there_and_waits() -> None:
    found, there = imported(), modules(ROOT / "src")
    assert {name: sorted(names & uncalled(there[name], found.get(name, ()))) for name, names in LATER.items()} == {
        name: sorted(names) for name, names in LATER.items()
    }


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("def f(): ...", {"f"}),
        ("def f(): ...\nf()", set()),
        ("def f(): ...\ndef g(): f()", {"f", "g"}),
        ("def f(): ...\ndef main(): f()", set()),
        ("A = 1\nB = A", {"A", "B"}),
        ("class A: ...\ndef main(a: 'A') -> None: ...", set()),
        ("@command(x)\ndef f(): ...", set()),
        ("@cache\ndef f(): f()", {"f"}),
    ],
)
def test_uncalled(text: str, want: set[str]) -> None:
    assert uncalled(ast.parse(text), {"main"}) == want
