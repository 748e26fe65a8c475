"""Nothing global fills up in the pure part: what is remembered is owned by an object that the program makes.

A module-level cache is shared by everything in a process, is never emptied, and ties tests together. The few that stay
are listed with a reason; where it is their speed, the numbers are in the code beside them.
"""

import ast
import inspect
import pkgutil
from collections import deque
from collections.abc import Iterator, MutableMapping, MutableSequence, MutableSet
from importlib import import_module
from types import ModuleType
from typing import Final

import pytest

import authplane

PURE: Final = ("core", "cel", "matching", "resources", "policy", "xds", "sources", "controlplane")
"""The packages without I/O; their ``runtime`` packages are the world's."""

ALLOWED: Final = {
    "authplane.cel.check.engine.engine_for": "one for each vocabulary, and those are constants",
    "authplane.cel.check.engine._written": "one value, made when the engine is first needed",
    "authplane.cel.check.program.compile_expression": "1,000 times slower without; numbers beside it",
    "authplane.policy.attached.request_target.parse_target": "a twelfth of a decision; numbers beside it",
    "authplane.policy.rules.ca_certificates.rewrite_certificates": "each pass reads them; numbers beside it",
    "authplane.resources.typed.shapes._shape": "one for each kind, and those are classes of ours",
    "authplane.xds.server.lingering.wire.join_extension": "eight, the same for all proxies; numbers beside it",
    "authplane.controlplane.graph.tls.certificates.read_pair": "Gateways read theirs in each build; numbers beside it",
    "authplane.controlplane.graph.tls.certificates.read_certificates": "as above",
    "authplane.controlplane.render.listeners.filter_chain._digest": "few chains for many hosts; numbers beside it",
    "authplane.controlplane.render.listeners.http_connections._common_settings": "for each host; numbers beside it",
    "authplane.controlplane.render.newer_fields.newer_messages": "one value, made when JSON is first shown",
}
"""What may stay, and why. The list only gets shorter: see `MOST_ALLOWED`."""
MOST_ALLOWED: Final = 13

_MUTATES: Final = frozenset({
    "add", "append", "appendleft", "clear", "extend", "insert", "move_to_end", "pop", "popitem", "popleft", "remove",
    "discard", "setdefault", "update",
})  # fmt: skip


def pure_modules() -> Iterator[ModuleType]:
    for room in PURE:
        package = import_module(f"authplane.{room}")
        yield package
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "runtime" not in found.name.split("."):
                yield import_module(found.name)


def caches(module: ModuleType) -> Iterator[str]:
    """Name the functions of a module that remember what they returned, and its tables that something is put into."""
    for name, value in vars(module).items():
        if hasattr(value, "cache_info") and getattr(value, "__module__", "") == module.__name__:
            yield name
    yield from tables(module, ast.parse(inspect.getsource(module)))


def tables(module: ModuleType, tree: ast.Module) -> Iterator[str]:
    containers = {
        name
        for name, value in vars(module).items()
        if isinstance(value, MutableMapping | MutableSequence | MutableSet | deque) and not name.startswith("__")
    }
    yield from sorted(containers & {name for node in ast.walk(tree) for name in changed_by(node)})


def changed_by(node: ast.AST) -> Iterator[str]:
    """Name what a piece of code puts something into or takes something from, if it has a name of its own."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if attribute in _MUTATES:
            yield name
        case ast.AugAssign(target=ast.Name(id=name)):
            yield name
        case _:
            pass


@pytest.mark.slow
def test_nothing_fills_up_in_a_module_without_a_reason() -> None:
    found = {f"{module.__name__}.{name}" for module in pure_modules() for name in caches(module)}
    assert found == ALLOWED.keys()
    assert len(ALLOWED) <= MOST_ALLOWED


SAMPLES: Final = {
    "a cache of a function": ("from functools import lru_cache\n@lru_cache\ndef f(x): return x", ["f"]),
    "a dictionary that is filled": ("D = {}\ndef f(x): D[x] = 1", ["D"]),
    "a set that is added to": ("S = set()\ndef f(x): S.add(x)", ["S"]),
    "values held weakly": (
        "from weakref import WeakValueDictionary\nW = WeakValueDictionary()\ndef f(x): return W.setdefault(x, x)",
        ["W"],
    ),
    "a constant table": ("D = {1: 2}\ndef f(x): return D[x]", []),
    "a table of a function": ("def f(x):\n    d = {}\n    d[x] = 1\n    return d", []),
}


@pytest.mark.parametrize(("text", "found"), SAMPLES.values(), ids=SAMPLES.keys())
def test_what_fills_up_is_found(text: str, found: list[str]) -> None:
    module = ModuleType("sample")
    exec(text, vars(module))  # noqa: S102 (a text of ours)
    named = [name for name, value in vars(module).items() if hasattr(value, "cache_info")]
    assert [*named, *tables(module, ast.parse(text))] == found


def test_all_of_the_pure_part_is_looked_at() -> None:
    names = {module.__name__ for module in pure_modules()}
    assert {
        "authplane.core.memo",
        "authplane.sources.document_versions",
        "authplane.controlplane.render.rendered",
    } <= names
    assert not any("runtime" in name.split(".") for name in names)
    assert authplane.__name__ not in names
