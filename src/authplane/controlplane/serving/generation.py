"""One generation of the configuration: from documents to the resources for proxies."""

from collections.abc import Mapping
from dataclasses import field
from functools import cache, partial
from types import MappingProxyType
from typing import TypeAlias

from authplane.controlplane.graph.build import Built, build_graph
from authplane.controlplane.graph.build_memory import Memory
from authplane.controlplane.graph.model.programming import NotServed, Programming
from authplane.controlplane.graph.reached_targets import reached_placings, reached_targets, routed_targets
from authplane.controlplane.graph.upstreams.policy_connection import PolicyServer
from authplane.controlplane.render.rendered import Rendered, render_graph
from authplane.controlplane.serving.release_snapshots import Snapshots
from authplane.controlplane.status.findings import build_findings
from authplane.controlplane.status.gateway_status import build_gateway_status
from authplane.controlplane.status.policy_status import Observed, with_policies
from authplane.controlplane.status.remembered_enforcement import RememberedEnforcement
from authplane.controlplane.status.resource_status import Status, build_status
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.values import dataclass
from authplane.policy.attached.attachments import RequestTarget
from authplane.policy.compile.compile_policies import Compiled, PolicyCompiler
from authplane.policy.placement.plan_cache import Plans
from authplane.policy.placement.target_routes import TargetRoutes
from authplane.resources.documents import Finding
from authplane.sources.document_versions import Loaded
from authplane.xds.server.served_types import TypeUrl
from authplane.xds.server.snapshot import Snapshot, change


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Everything that follows from one state of the documents."""

    loaded: Loaded
    built: Built
    compiled: Compiled
    """The compiled policies."""
    memory: Memory = field(repr=False)
    compiler: PolicyCompiler = field(repr=False)
    snapshots: Snapshots = field(repr=False)
    told: RememberedEnforcement = field(default_factory=RememberedEnforcement, repr=False)
    """The conditions of policies in earlier statuses."""

    @property
    def snapshot(self) -> Snapshot:
        """What proxies of the current release of Envoy get."""
        return self.snapshots.current

    def edition(self, envoy: Release | None) -> Snapshot:
        """Return the snapshot for proxies of a release; None is for old proxies and those that report no release."""
        return self.snapshots.of(envoy)

    @property
    def rendered(self) -> Rendered:
        """The content of the snapshot, as messages; rendered on demand."""
        return self.rendered_for(CURRENT)

    def rendered_for(self, envoy: Release | None) -> Rendered:
        """Return the content of an edition, as messages."""
        return render_graph(self.built.graph, envoy)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every problem with its place, whichever pass found it."""
        return build_findings(self.loaded, self.built, self.compiled)

    @property
    def routed(self) -> tuple[RequestTarget, ...]:
        """The targets of routes, whether requests are checked there or not."""
        return routed_targets(self.built)

    def status(
        self,
        programming: Programming,
        envoy: Release | None = CURRENT,
        without_keys: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[Status, ...]:
        """Return the status of every resource that has one, as it is with proxies of a release of Envoy.

        ``without_keys`` are the issuers whose keys could not be fetched, by address, and why.
        """
        loaded = self.loaded
        given = (loaded.resources, loaded.findings, loaded.last_good, self.built, programming)
        statuses = (*build_status(*given), *build_gateway_status(*given))
        served = programming != NotServed()
        passages = cache(partial(self.passages, envoy, served=served))
        if not served:
            return with_policies(statuses, loaded, self.compiled, Observed(passages, self.routed))
        self.told.next_generation(reached_placings(self.built.graph), envoy)
        return with_policies(statuses, loaded, self.compiled, Observed(passages, self.routed, self.told, without_keys))

    def passages(self, envoy: Release | None = CURRENT, *, served: bool = False) -> TargetRoutes:
        """Return the targets that requests reach, with their policies.

        Unless they are ``served``, the keys of all issuers count as known, since they are not fetched.
        """
        reached: Mapping[RequestTarget, frozenset[str] | None] = reached_targets(self.built.graph)
        plans = Plans(self.memory.gateways.placements.shared.plans)
        return TargetRoutes(self.compiled.policies, reached if served else dict.fromkeys(reached), envoy, plans)


def build_generation(
    loaded: Loaded,
    before: Generation | None = None,
    policy_server: PolicyServer | None = None,
    keys: Mapping[str, str] | None = None,
    compiler: PolicyCompiler | None = None,
) -> Generation:
    """Build the graph and what it renders to; parts that equal the generation ``before`` are shared with it.

    ``policy_server`` replaces the one that the documents name. ``keys`` are the key sets of issuers, as JSON by
    address: proxies verify the tokens of those issuers, and the policy server those of all others. A ``compiler`` that
    has seen these documents makes the first generation sooner.
    """
    memory = before.memory if before else Memory()
    compiler = before.compiler if before else compiler or PolicyCompiler()
    compiled = compiler.compile(loaded.resources)
    built = build_graph(loaded.resources, memory, policy_server, compiled.policies, keys)
    return Generation(
        loaded=loaded,
        built=built,
        compiled=compiled,
        memory=memory,
        compiler=compiler,
        snapshots=Snapshots(built.graph, before.snapshots if before else None),
        told=before.told if before else RememberedEnforcement(),
    )


Difference: TypeAlias = dict[str, list[str]]
"""The changes for proxies, described: ``{"routes changed": ["https/a.example"]}``."""


def differences(before: Snapshot | None, after: Snapshot) -> Difference:
    """Describe the changes that proxies will get."""
    found: Difference = {}
    for type_url in TypeUrl:
        old = before.resources(type_url) if before else {}
        changed = change(old, after.resources(type_url))
        noun = f"{type_url.name.lower()}s"
        added = [name for name in changed.updated if name not in old]
        updated = [name for name in changed.updated if name in old]
        for verb, names in (("added", added), ("changed", updated), ("removed", list(changed.removed))):
            if names:
                found[f"{noun} {verb}"] = names
    return found
