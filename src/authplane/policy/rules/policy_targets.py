"""What policies protect: Backends and Gateways of their own namespace."""

from authplane.core.names import Ref
from authplane.core.problems import Problems
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import TargetRef
from authplane.resources.nameable_targets import (
    AGENTIC,
    BACKENDS,
    DEFAULT_GATEWAY,
    DEFAULT_LISTENER,
    GROUPS,
    PolicyTarget,
    Written,
    absence,
    exists,
    is_grpc,
    kind_problem,
    listeners,
    mcp_servers,
    meant_kind,
    named,
    written_policies,
)

__all__ = [
    "AGENTIC",
    "BACKENDS",
    "DEFAULT_GATEWAY",
    "DEFAULT_LISTENER",
    "GROUPS",
    "PolicyTarget",
    "Written",
    "absence",
    "all_in",
    "exists",
    "is_grpc",
    "kind_problem",
    "listeners",
    "mcp_servers",
    "meant_kind",
    "named",
    "parse_targets",
    "written_policies",
]


def parse_targets(written: tuple[TargetRef, ...], namespace: str, problems: Problems) -> tuple[PolicyTarget, ...]:
    """Read the targets of a policy, each once; what no policy can protect is reported.

    What is spelled almost like something that a policy can protect is taken for it: so it denies, until the mistake is
    corrected.
    """
    found: dict[PolicyTarget, None] = {}
    with problems.at("spec", "targetRefs"):
        if not written:
            problems.warn("NoTargets", "The policy has no targets, so it protects nothing. Add a target.")
        for index, each in enumerate(written):
            with problems.at(index):
                found[_parse_target(each, namespace, problems)] = None
        kinds = {"Gateway" if each.kind == "Gateway" else "Backend" for each in written}
        if len(kinds) > 1:
            problems.add(
                "Invalid",
                "The targets have different kinds. Split the policy, so that each policy has targets of one kind.",
            )
    return tuple(found)


def _parse_target(written: TargetRef, namespace: str, problems: Problems) -> PolicyTarget:
    kind = meant_kind(written.kind)
    if kind != written.kind or written.group not in {None, *GROUPS.get(kind, ())} or kind not in GROUPS:
        problems.add("UnsupportedTarget", kind_problem(written))
    section = written.section_name
    if section and kind != "Gateway":
        with problems.at("sectionName"):
            problems.add("Invalid", "sectionName applies only to a Gateway. Remove sectionName.")
        section = ""
    return PolicyTarget(Ref(kind, namespace, written.name), section, written.group)


def all_in(resources: Resources, namespace: str) -> tuple[PolicyTarget, ...]:
    """Return everything in a namespace that a policy could protect."""
    return tuple(PolicyTarget(ref) for kind in GROUPS for ref in named(resources, kind) if ref.namespace == namespace)
