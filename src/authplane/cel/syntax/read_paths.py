"""Finds the data that an expression reads, so that only that is computed and passed to the engine."""

from typing import Final

from authplane.cel.syntax.tree import Call, Const, Has, Node, parts, path_of
from authplane.cel.syntax.vocabulary import MAPS, Variable, Vocabulary
from authplane.core.values import dataclass

_RESERVED: Final = frozenset({"false", "in", "null", "true"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A variable, and what of it is read."""

    variable: Variable
    keys: frozenset[str] | None
    """The keys of a map that are named in the expression; None if it is read as a whole."""

    @property
    def paths(self) -> tuple[str, ...]:
        """What is read as people write it, sorted: ``identity.group``."""
        if self.keys is None:
            return (self.variable.name,)
        return tuple(f"{self.variable.name}{render_key(key)}" for key in sorted(self.keys))


@dataclass(frozen=True, slots=True)
class Bare:
    """A namespace used as if it were a value."""

    node: Node
    name: str


def find_reads(tree: Node, vocabulary: Vocabulary) -> tuple[tuple[Read, ...], tuple[Bare, ...]]:
    """Return what an expression reads, in the order of the vocabulary, and the namespaces it takes for values."""
    finder = _Finder(vocabulary)
    finder.visit(tree)
    reads = tuple(
        Read(variable=each, keys=None if None in keys else frozenset(key for key in keys if key is not None))
        for each in vocabulary.variables
        if (keys := finder.found.get(each.name)) is not None
    )
    return reads, tuple(finder.bare)


def read_path(path: tuple[str, ...], vocabulary: Vocabulary) -> tuple[Variable, tuple[str, ...]] | None:
    """Split a path into the variable that it begins with and the keys that follow."""
    for size in range(len(path), 0, -1):
        variable = vocabulary.by_name.get(".".join(path[:size]))
        if variable is not None:
            return variable, path[size:]
    return None


def render_key(key: str) -> str:
    """Write a key of a map as an expression does."""
    plain = key.isidentifier() and key.isascii() and key not in _RESERVED
    return f".{key}" if plain else f"[{quoted(key)}]"


def quoted(text: str) -> str:
    """Write a string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in escaped) + '"'


class _Finder:
    """Collects the keys of each variable; None among them means the whole."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.found: dict[str, set[str | None]] = {}
        self.bare: list[Bare] = []

    def visit(self, node: Node) -> None:
        match node:
            case Has(operand=operand, field=field):
                above = path_of(operand)
                if above is None:
                    self.visit(operand)
                else:
                    self._path(node, (*above, field), tested=True)
            case Call(function="@in", args=(Const(value=str(key)), container)) if self._is_map(container):
                self._path(node, (*(path_of(container) or ()), key), tested=True)
            case _:
                path = path_of(node)
                if path is not None:
                    self._path(node, path, tested=False)
                    return
                for each in parts(node):
                    self.visit(each)

    def _is_map(self, node: Node) -> bool:
        path = path_of(node)
        variable = None if path is None else self._vocabulary.by_name.get(".".join(path))
        return variable is not None and variable.kind in MAPS

    def _path(self, node: Node, path: tuple[str, ...], *, tested: bool) -> None:
        if path[0] not in self._vocabulary.roots:
            return
        found = read_path(path, self._vocabulary)
        if found is not None:
            variable, keys = found
            self.found.setdefault(variable.name, set()).add(keys[0] if keys else None)
        elif tested:
            # Whether a namespace is present depends on all variables below it.
            for variable in self._vocabulary.below(".".join(path)):
                self.found.setdefault(variable.name, set()).add(None)
        else:
            self.bare.append(Bare(node, ".".join(path)))
