"""The routes of HTTPRoutes at a listener, with their precedence, and the service that checks their requests."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from authplane.controlplane.graph.gateway.gateway_hosts import Entry
from authplane.controlplane.graph.gateway.gateway_listeners import Listener
from authplane.controlplane.graph.gateway.protection import NO_TOKENS, Protection, Tokens
from authplane.controlplane.graph.gateway.route_matches import precedence, rewrite_at
from authplane.controlplane.graph.gateway.route_rules import ReadRoute, Rule, RuleBackend
from authplane.controlplane.graph.model.match_model import Match, Regex
from authplane.controlplane.graph.model.route_authorization import (
    AuthorizationService,
    ByTarget,
    Enforced,
    RouteAuthorization,
    Shadow,
    Unprotected,
)
from authplane.controlplane.graph.model.route_model import Forward, Route, Target
from authplane.controlplane.graph.model.target_placements import Placing, Placings
from authplane.core.names import ObjectName
from authplane.core.values import dataclass
from authplane.policy.check.client_address import TRUSTED_HOPS

TARGET: Final = "authplane.target"
"""In the context of a check: the Backend that the request is for, as ``Backend/<namespace>/<name>``."""
GATEWAY: Final = "authplane.gateway"
"""In the context of a check: where it came in, as ``Gateway/<namespace>/<name>/<listener>``."""
ROUTE: Final = "authplane.route"
"""In the context of a check: the HTTPRoute, as ``HTTPRoute/<namespace>/<name>``."""
RESOURCE: Final = "authplane.resource"
"""In the context of a check: the path under which clients know the Backend; its RFC 9728 document is below that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """Who checks requests, and whether those for Backends without policies are checked as well."""

    service: AuthorizationService
    placings: Placings
    unprotected_backends: bool
    trusted_hops: int = 0
    """Number of trusted proxies in front of this one."""

    @property
    def shadow_service(self) -> AuthorizationService:
        """The service for targets that only have policies in shadow: the same one, and no decision stops a request."""
        body = self.service.body
        partial = replace(body, partial=True) if body is not None else None
        return replace(self.service, on_failure=Shadow(), body=partial)


@dataclass(frozen=True, slots=True)
class Front:
    """A listener, and the tokens that its own policies accept."""

    listener: Listener
    tokens: Tokens | None
    shadowed: bool


def front_of(listener: Listener, protection: Protection) -> Front:
    """Return a listener with the tokens that its policies accept."""
    tokens = protection.listener(listener.gateway, listener.section)
    return Front(listener, tokens, protection.shadows_listener(listener.gateway, listener.section))


class Entries:
    """Makes the entries of a route at one listener."""

    def __init__(self, front: Front, checks: Checks) -> None:
        self._listener = front.listener
        self._tokens = front.tokens
        self._shadowed = front.shadowed
        self._checks = checks

    def of(self, route: ReadRoute) -> Iterator[Entry]:
        """Yield an entry for every match, in the order in which they are written."""
        for rule in route.rules:
            for match in rule.matches:
                yield self._entry(route.name, rule, match)

    def _entry(self, route: ObjectName, rule: Rule, match: Match) -> Entry:
        tokens = self._tokens or NO_TOKENS
        for backend in rule.backends:
            tokens |= backend.tokens or NO_TOKENS
        described = bool(tokens.issuers) and not isinstance(match.path, Regex)
        resource = match.path.path if described else ""
        each = tuple(self._authorization(backend, route, resource) for backend in rule.backends)
        alone = len(each) == 1
        made = Route(
            holder=str(route),
            match=match,
            authorization=each[0] if alone else ByTarget(each),
            action=Forward(
                targets=tuple(_target(backend, host=None if alone else backend.host) for backend in rule.backends),
                response_timeout=rule.timeout,
                idle_timeout=rule.idle,
                rewrite=rewrite_at(match.path, rule.rewrite),
                host=rule.backends[0].host if alone else "",
            ),
        )
        return Entry(precedence(match), made, tokens if described else NO_TOKENS)

    def _authorization(self, backend: RuleBackend, route: ObjectName, resource: str) -> RouteAuthorization:
        demanded = backend.target is not None and self._checks.unprotected_backends
        checked = self._tokens is not None or backend.tokens is not None or demanded
        if not checked and not self._shadowed and not backend.shadowed:
            return Unprotected()
        context = {GATEWAY: f"Gateway/{self._listener.name}", ROUTE: f"HTTPRoute/{route}"}
        if backend.target is not None:
            context[TARGET] = str(backend.target)
        if resource:
            context[RESOURCE] = resource
        if self._checks.trusted_hops:
            context[TRUSTED_HOPS] = str(self._checks.trusted_hops)
        return Enforced(
            service=self._checks.service if checked else self._checks.shadow_service,
            context=tuple(sorted(context.items())),
            placing=self._placing(context, checked=checked),
        )

    def _placing(self, context: Mapping[str, str], *, checked: bool) -> Placing | None:
        """Return what a proxy may decide by itself; what is to be checked is left to it only where there are rules."""
        placing = self._checks.placings[context.get(TARGET), context[GATEWAY]]
        if placing is None or placing.chain.guarded is not checked:
            return None
        # Only documents at known paths can be named to those who need a token.
        return placing if RESOURCE in context or not placing.chain.uses_tokens else None


def _target(backend: RuleBackend, host: str | None) -> Target:
    return Target(cluster=backend.cluster, weight=backend.weight, host=host, mcp=backend.target is not None)
