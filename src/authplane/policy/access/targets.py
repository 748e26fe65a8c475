"""What policies protect: Backends and Gateways of their own namespace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from authplane.base.names import Ref
from authplane.base.problems import Problems
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import TargetRef

AGENTIC: Final = frozenset({"agentic.networking.x-k8s.io", "agentic.prototype.x-k8s.io"})
GROUPS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {"Backend": AGENTIC, "XBackend": AGENTIC, "Gateway": frozenset({"gateway.networking.k8s.io"})}
)
"""The kinds that policies can protect, and the groups they may be of."""
_SPELLINGS: Final[Mapping[str, str]] = MappingProxyType(
    {spelling: kind for kind in GROUPS for spelling in (kind.lower(), f"{kind.lower()}s")}
)
BACKENDS: Final = frozenset({"Backend", "XBackend"})
DEFAULT_GATEWAY: Final = Ref("Gateway", "default", "authplane")
DEFAULT_LISTENER: Final = "default"
"""What the Gateway is called that is there without a document."""


@dataclass(frozen=True, slots=True, order=True)
class Aim:
    """What one ``targetRef`` means: a backend, a Gateway, or one of its listeners."""

    ref: Ref
    section: str = ""
    group: str | None = field(default=None, compare=False)
    """As it is written; left out, it is that of the kind."""

    def __str__(self) -> str:
        return f"{self.ref}/{self.section}" if self.section else str(self.ref)


def parse_targets(written: tuple[TargetRef, ...], namespace: str, problems: Problems) -> tuple[Aim, ...]:
    """Read the targets of a policy, each once; what no policy can protect is reported.

    What is spelled almost like something that a policy can protect is taken for it: so it denies, until the mistake is
    corrected.
    """
    found: dict[Aim, None] = {}
    with problems.at("spec", "targetRefs"):
        if not written:
            problems.warn("NoTargets", "the policy protects nothing: it has no targets")
        for index, each in enumerate(written):
            with problems.at(index):
                found[_parse_target(each, namespace, problems)] = None
        kinds = {"Gateway" if each.kind == "Gateway" else "Backend" for each in written}
        if len(kinds) > 1:
            problems.add("Invalid", "all targets of a policy must have the same kind")
    return tuple(found)


def _parse_target(written: TargetRef, namespace: str, problems: Problems) -> Aim:
    kind = meant_kind(written.kind)
    if kind != written.kind or written.group not in {None, *GROUPS.get(kind, ())} or kind not in GROUPS:
        group = "" if written.group is None else f" of {written.group!r}"
        problems.add("UnsupportedTarget", f"a policy cannot protect a {written.kind!r}{group}; use Backend or Gateway")
    section = written.section_name
    if section and kind != "Gateway":
        with problems.at("sectionName"):
            problems.add("Invalid", "only a Gateway has sections")
        section = ""
    return Aim(Ref(kind, namespace, written.name), section, written.group)


def meant_kind(written: str) -> str:
    """Return the kind of a target; one in another case, or in the plural, is meant to be protected too."""
    return _SPELLINGS.get(written.lower(), written)


def listeners(resources: Resources) -> Mapping[Ref, tuple[str, ...]]:
    """Return the Gateways that there are, with the names of their listeners.

    Without a Gateway document there is one that nobody wrote, if there is a backend that it can lead to.
    """
    found = {
        Ref("Gateway", name.namespace, name.name): tuple(each.name for each in gateway.spec.listeners)
        for name, gateway in resources.gateways.items()
    }
    unread = any(ref.kind == "Gateway" for ref in resources.broken)
    if found or unread or not mcp_servers(resources):
        return found
    return {DEFAULT_GATEWAY: (DEFAULT_LISTENER,)}


def is_grpc(resources: Resources, ref: Ref) -> bool:
    """Tell whether a target is a gRPC server, which no Gateway leads to."""
    backend = resources.backends.get(ref.object_name) if ref.kind == "Backend" else None
    return backend is not None and backend.spec.grpc is not None


def mcp_servers(resources: Resources) -> bool:
    """Tell whether there are MCP servers."""
    return bool(resources.x_backends) or any(each.spec.mcp is not None for each in resources.backends.values())


def exists(resources: Resources, aim: Aim) -> bool:
    """Tell whether a target is there."""
    name = aim.ref.object_name
    match aim.ref.kind:
        case "Backend":
            return name in resources.backends
        case "XBackend":
            return name in resources.x_backends
        case "Gateway":
            gateway = resources.gateways.get(name)
            if gateway is not None:
                return not aim.section or any(each.name == aim.section for each in gateway.spec.listeners)
            return aim.section in {"", *listeners(resources).get(aim.ref, ())} and aim.ref in listeners(resources)
        case _:
            return False


def absence(resources: Resources, aim: Aim) -> str:
    """Say why a target is not there."""
    if aim.ref in resources.broken:
        return f"{aim.ref.kind} {aim.ref.object_name} cannot be read"
    if aim.section and exists(resources, Aim(aim.ref)):
        return f"Gateway {aim.ref.object_name} has no listener {aim.section!r}; until it has, all of it is denied"
    return f"{aim.ref.kind} {aim.ref.object_name} not found"


def all_in(resources: Resources, namespace: str) -> tuple[Aim, ...]:
    """Return everything in a namespace that a policy could protect."""
    backends = (("Backend", resources.backends), ("XBackend", resources.x_backends))
    refs = [Ref(kind, name.namespace, name.name) for kind, table in backends for name in table]
    return tuple(Aim(ref) for ref in (*refs, *listeners(resources)) if ref.namespace == namespace)
