"""What policies can name: Backends and Gateways of their own namespace, and whether those exist."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import AccessPolicy, TargetRef, XAccessPolicy, XAccessPolicyV0

Written: TypeAlias = AccessPolicy | XAccessPolicyV0 | XAccessPolicy
"""A policy as its document says it."""

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
class PolicyTarget:
    """What one ``targetRef`` means: a backend, a Gateway, or one of its listeners."""

    ref: Ref
    section: str = ""
    group: str | None = field(default=None, compare=False)
    """As it is written; left out, it is that of the kind."""

    def __str__(self) -> str:
        return f"{self.ref}/{self.section}" if self.section else str(self.ref)


def written_policies(resources: Resources) -> Iterator[tuple[Ref, Written]]:
    """Yield the policies of either kind."""
    tables: tuple[tuple[str, Iterable[Written]], ...] = (
        ("AccessPolicy", resources.access_policies.values()),
        ("XAccessPolicy", resources.x_access_policies.values()),
    )
    for kind, documents in tables:
        for policy in documents:
            yield Ref(kind, policy.metadata.namespace, policy.metadata.name), policy


def kind_problem(written: TargetRef) -> str:
    """Say that no policy can protect a target of its kind and group."""
    group = "" if written.group is None else f" of {written.group!r}"
    return f"A policy cannot protect a {written.kind!r}{group}. Use Backend or Gateway."


def meant_kind(written: str) -> str:
    """Return the kind of a target; a spelling in another case, or in the plural, is protected too."""
    return _SPELLINGS.get(written.lower(), written)


def listeners(resources: Resources) -> Mapping[Ref, tuple[str, ...]]:
    """Return the Gateways with the names of their listeners.

    Without a Gateway document, the default Gateway is the only one, if it can lead to a backend.
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


def exists(resources: Resources, aim: PolicyTarget) -> bool:
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


def absence(resources: Resources, aim: PolicyTarget) -> str:
    """Say why a target is not there."""
    if aim.ref in resources.broken:
        return f"{aim.ref.kind} {aim.ref.object_name} cannot be read. Correct its document."
    if aim.section and exists(resources, PolicyTarget(aim.ref)):
        lacking = (
            f"Gateway {aim.ref.object_name} has no listener {aim.section!r}, so authplane denies all requests to the "
            "Gateway."
        )
        return f"{lacking} Add the listener, or correct sectionName."
    return f"{aim.ref.kind} {aim.ref.object_name} not found. Add it, or correct the name."


def named(resources: Resources, kind: str) -> Iterator[Ref]:
    """Yield everything of a kind that a policy could protect."""
    if kind == "Gateway":
        yield from listeners(resources)
    else:
        table = resources.backends if kind == "Backend" else resources.x_backends
        yield from (Ref(kind, name.namespace, name.name) for name in table)
