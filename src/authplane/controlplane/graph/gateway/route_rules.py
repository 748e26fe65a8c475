"""Rules of HTTPRoutes: their matches, and the backends that share their requests."""

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, assert_never

from authplane.controlplane.graph.gateway.gateway_listeners import Fault
from authplane.controlplane.graph.gateway.mcp_backends import Backends
from authplane.controlplane.graph.gateway.protection import Protection, Tokens
from authplane.controlplane.graph.gateway.route_matches import read_match, read_rewrite, read_timeout
from authplane.controlplane.graph.model.match_model import Match
from authplane.controlplane.graph.model.reference_grants import may_refer
from authplane.controlplane.graph.model.route_model import NewPath, NewPrefix
from authplane.controlplane.graph.upstreams.service_clusters import Clusters, Wanted
from authplane.core.names import ObjectName, Ref
from authplane.core.problems import Problems, Severity
from authplane.core.timeouts import After, Disabled, Timeout, UseDefault
from authplane.core.values import dataclass
from authplane.policy.rules.policy_targets import is_grpc
from authplane.resources.documents import Resources
from authplane.resources.kinds.gateway import HTTPBackendRef, HTTPRoute, HTTPRouteRule
from authplane.resources.service_endpoints import NO_ENDPOINTS

_AGENTIC: Final = frozenset({"agentic.networking.x-k8s.io", "agentic.prototype.x-k8s.io"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBackend:
    """A backend of a rule; without a cluster its share is answered 500."""

    target: Ref | None
    """The Backend that policies may protect; None for a Service, and for what cannot be found."""
    tokens: Tokens | None
    """Which tokens its policies accept; None if it has no policies."""
    cluster: str | None
    weight: int
    host: str = ""
    shadowed: bool = False
    """A policy in shadow names it."""
    idle: Timeout = UseDefault()
    """How long a request or its response may be idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule, whichever listener it is attached to."""

    index: int
    matches: tuple[Match, ...]
    backends: tuple[RuleBackend, ...]
    """Those that get requests."""
    timeout: Timeout
    idle: Timeout
    rewrite: NewPrefix | NewPath | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRoute:
    """An HTTPRoute, before it is attached."""

    name: ObjectName
    hostnames: tuple[str, ...]
    rules: tuple[Rule, ...]
    not_accepted: Fault | None = None
    unresolved: Fault | None = None


class Cover(NamedTuple):
    """The policies of a Backend: which tokens they accept, if it has any, and whether one is in shadow."""

    tokens: Tokens | None
    shadowed: bool


Covers: TypeAlias = Mapping[ObjectName, Cover]
"""Has an answer for every Backend, whether it is there or not."""


class CoversOf(Covers):
    """What everything that policies name is to Backends."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    def __getitem__(self, name: ObjectName) -> Cover:
        return Cover(self._protection.backend(name), self._protection.shadows_backend(name))

    def __iter__(self) -> Iterator[ObjectName]:
        return iter(self._protection.backends)

    def __len__(self) -> int:
        return len(self._protection.backends)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteContext:
    """What routes are built from beside their own document."""

    resources: Resources
    clusters: Clusters
    backends: Backends
    covers: Covers


def read_route(route: HTTPRoute, hostnames: tuple[str, ...], beside: RouteContext, problems: Problems) -> ReadRoute:
    """Read the rules of a route; an error in a rule disables the route, a missing backend only its share of requests.

    Earlier ``problems`` of the route count too: a route with an invalid hostname is not served.
    """
    read = _Read(route.metadata.object_name, beside, problems)
    rules = []
    with problems.at("spec", "rules"):
        for index, written in enumerate(route.spec.rules):
            with problems.at(index):
                rules.append(read.rule(written, index))
    fault = next((each for each in problems.errors if each.reason == "UnsupportedValue"), None)
    return ReadRoute(
        name=route.metadata.object_name,
        hostnames=hostnames,
        rules=tuple(rules),
        not_accepted=Fault(fault.reason, fault.message) if fault is not None else None,
        unresolved=read.unresolved,
    )


class _Read:
    """Reads the rules of one HTTPRoute."""

    def __init__(self, name: ObjectName, beside: RouteContext, problems: Problems) -> None:
        self._ref = Ref("HTTPRoute", name.namespace, name.name)
        self._beside = beside
        self._problems = problems
        self.unresolved: Fault | None = None

    def rule(self, written: HTTPRouteRule, index: int) -> Rule:
        """Read a rule."""
        matches = []
        for position, each in enumerate(written.matches):
            with self._problems.at("matches", position):
                matches.append(read_match(each, self._problems))
        with self._problems.at("filters"):
            rewrite, host = read_rewrite(written.filters, [each.path for each in matches], self._problems)
        backends = []
        for position, ref in enumerate(written.backend_refs):
            with self._problems.at("backendRefs", position):
                backends.append(self._backend(ref, host))
        # Answers of MCP servers are streams that may last.
        otherwise = Disabled() if any(each.target is not None for each in backends) else UseDefault()
        return Rule(
            index=index,
            matches=tuple(matches),
            backends=tuple(each for each in backends if each.weight) or (_NOBODY,),
            timeout=read_timeout(written.timeouts, otherwise, self._problems),
            idle=max((each.idle for each in backends), key=_patience, default=UseDefault()),
            rewrite=rewrite,
        )

    def _backend(self, ref: HTTPBackendRef, host: str) -> RuleBackend:
        target = Ref(ref.kind, ref.namespace or self._ref.namespace, ref.name)
        if ref.filters:
            with self._problems.at("filters"):
                self._problems.add("UnsupportedValue", "Filters of a backend are not supported. Remove them.")
        is_backend = ref.kind in {"Backend", "XBackend"} and ref.group in _AGENTIC
        if not is_backend and (ref.group, ref.kind) != ("", "Service"):
            self._add(
                "InvalidKind", f"{ref.kind!r} of group {ref.group!r} cannot be a backend. Use Service or Backend."
            )
        elif not may_refer(self._beside.resources, self._ref, target):
            origin = f'HTTPRoute "{self._ref.object_name}"'
            self._add(
                "RefNotPermitted",
                f'No ReferenceGrant lets {origin} refer to {ref.kind} "{target.object_name}". '
                f'Add a ReferenceGrant in namespace "{target.namespace}".',
            )
        elif is_backend:
            return self._protected(target, ref.weight, host)
        else:
            return RuleBackend(
                target=None, tokens=None, cluster=self._service(target, ref), weight=ref.weight, host=host
            )
        return RuleBackend(target=None, tokens=None, cluster=None, weight=ref.weight)

    def _protected(self, ref: Ref, weight: int, host: str) -> RuleBackend:
        found = self._beside.backends.get(ref)
        tokens, shadowed = self._beside.covers[ref.object_name]
        if found is None or found.cluster is None:
            why = "not found. Add it."
            if is_grpc(self._beside.resources, ref):
                why = "is a gRPC server, but a Gateway serves only MCP servers. Use a Backend of type MCP."
            elif found is not None or ref in self._beside.resources.broken:
                why = "is not valid. See its status."
            self._add("BackendNotFound", f'{ref.kind} "{ref.object_name}" {why}')
            return RuleBackend(target=ref, tokens=tokens, cluster=None, weight=weight)
        host = found.host or host
        return RuleBackend(
            target=ref,
            tokens=tokens,
            cluster=found.cluster,
            weight=weight,
            host=host,
            shadowed=shadowed,
            idle=found.idle,
        )

    def _service(self, ref: Ref, written: HTTPBackendRef) -> str | None:
        if written.port is None:
            self._add("BackendNotFound", f'The reference to Service "{ref.object_name}" has no port. Set port.')
            return None
        found = self._beside.clusters[Wanted(service=ref.object_name, port=written.port)]
        for each in found.problems:
            if each.reason == NO_ENDPOINTS and not written.weight:
                continue
            message = each.message.removeprefix("Spec.Routes unresolved service reference: ")
            if each.severity is Severity.ERROR:
                self._add("BackendNotFound", message)
            else:
                self._problems.warn(each.reason, message)
        return found.name

    def _add(self, reason: str, message: str) -> None:
        self._problems.add(reason, message)
        self.unresolved = self.unresolved or Fault(reason, message)


def _patience(idle: Timeout) -> float:
    """Rank timeouts: a route has one for all of its backends, and the most patient counts."""
    match idle:
        case UseDefault():
            return 0
        case After(duration=longest):
            return longest.total_seconds()
        case Disabled():
            return math.inf
        case _:
            assert_never(idle)


_NOBODY: Final = RuleBackend(target=None, tokens=None, cluster=None, weight=1)
