"""The HTTPProxies that a root includes, each at its place."""

from collections.abc import Iterator
from typing import Final

from authplane.controlplane.graph.httpproxy.route_conditions import (
    EVERYTHING,
    Conditions,
    include_conditions,
    joined,
    match_of,
)
from authplane.controlplane.graph.model.match_model import Match
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.contour import HTTPProxy

_DEEPEST: Final = 16
_LARGEST: Final = 10_000
"""Of one root. Includes of includes multiply: without a limit a few small documents could make any number."""
_ANY: Final = match_of(EVERYTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An HTTPProxy at its place below a root; the same one may be in several places."""

    proxy: HTTPProxy
    above: Conditions
    """The conditions of the includes that lead here."""
    problems: Problems
    """What is wrong with it, here."""
    dead_ends: tuple[Conditions, ...]
    """The conditions of the includes that lead from here to nothing."""

    @property
    def name(self) -> ObjectName:
        """The name of the HTTPProxy."""
        return self.proxy.metadata.object_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A root and all that it includes: every HTTPProxy comes after those that it includes, in the order written."""

    places: tuple[Place, ...]
    included: frozenset[ObjectName]


def walk(root: HTTPProxy, resources: Resources, problems: Problems) -> Tree:
    """Follow the includes of a root, whose own problems go to ``problems``, relative to its ``spec``."""
    walk = _Walk(resources)
    walk.visit(root, EVERYTHING, (root.metadata.object_name,), problems)
    return Tree(places=tuple(walk.places), included=frozenset(walk.included))


class _Walk:
    """What a walk has seen so far."""

    def __init__(self, resources: Resources) -> None:
        self.places: list[Place] = []
        self.included: set[ObjectName] = set()
        self._resources = resources
        self._open: dict[ObjectName, Problems] = {}
        """The HTTPProxies between the root and this one."""
        self._size = 0

    def visit(self, proxy: HTTPProxy, above: Conditions, chain: tuple[ObjectName, ...], problems: Problems) -> None:
        """Add an HTTPProxy and those below it; ``chain`` leads to it from the root, itself included."""
        self._open[chain[-1]] = problems
        below: list[tuple[int, HTTPProxy, Conditions]] = []
        dead_ends: list[Conditions] = []
        for index, name, here in self._includes(proxy, above, problems):
            found = self._find(name, chain, problems)
            if found is None:
                dead_ends.append(here)
            else:
                below.append((index, found, here))
        for index, included, here in below:
            own = Problems()
            with problems.at("includes", index), own.at("spec"):
                self.visit(included, here, (*chain, included.metadata.object_name), own)
        self.places.append(Place(proxy=proxy, above=above, problems=problems, dead_ends=tuple(dead_ends)))
        del self._open[chain[-1]]

    def _includes(
        self, proxy: HTTPProxy, above: Conditions, problems: Problems
    ) -> Iterator[tuple[int, ObjectName, Conditions]]:
        """Yield the target and the conditions of each usable include; problems are reported at the include."""
        seen: set[Match] = set()
        for index, include in enumerate(proxy.spec.includes):
            with problems.at("includes", index):
                conditions = include_conditions(include.conditions, problems)
                if conditions is None:
                    continue
                match = match_of(conditions)
                if match in seen and match != _ANY:
                    problems.add(
                        "DuplicateMatchConditions", "duplicate conditions defined on an include. Remove one of them."
                    )
                    continue
                seen.add(match)
                name = ObjectName(include.namespace or proxy.metadata.namespace, include.name)
                yield index, name, joined(above, conditions)

    def _find(self, name: ObjectName, chain: tuple[ObjectName, ...], problems: Problems) -> HTTPProxy | None:
        """Return what an include names; None if it must not or cannot be followed, which is an error."""
        found = self._resources.proxies.get(name)
        if found is None:
            unread = Ref("HTTPProxy", name.namespace, name.name) in self._resources.broken
            problems.add(
                "IncludeNotFound", f"include {name} {'cannot be read. Correct' if unread else 'not found. Add'} it."
            )
            return None
        if found.spec.virtualhost is not None:
            problems.add(
                "RootIncludesRoot",
                f"root httpproxy cannot include another root httpproxy ({name}). Remove virtualhost from {name}.",
            )
            return None
        if name in chain:
            cycle = " -> ".join(map(str, (*chain, name)))
            # Contour reports a cycle on the HTTPProxy where it closes, not on the one with the last include.
            self._open[name].add(
                "IncludeCreatesCycle", f"include creates an include cycle: {cycle}. Remove one of the includes."
            )
            return None
        self.included.add(name)
        if len(chain) >= _DEEPEST:
            problems.add(
                "IncludesTooMany", f"Includes are nested more than {_DEEPEST - 1} levels deep. Use fewer levels."
            )
            return None
        # Includes without an effect count too: finding that out is work, for each place of the HTTPProxy.
        self._size += 1 + len(found.spec.routes) + len(found.spec.includes)
        if self._size > _LARGEST:
            problems.add(
                "IncludesTooMany",
                f"The root HTTPProxy includes more than {_LARGEST} routes, includes and HTTPProxies in total. Split "
                "it.",
            )
            return None
        return found
