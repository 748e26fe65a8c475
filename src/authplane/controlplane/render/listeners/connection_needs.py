"""What connection managers have to know of the requests that they pass on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from authplane.controlplane.graph.model.host_model import (
    Host,
    RouteTable,
    ServiceHeaders,
    checks_of,
    forwards_of,
)
from authplane.controlplane.graph.model.route_authorization import AuthorizationService, Enforced, Shadow
from authplane.controlplane.render.ext_authz_filter import manner_of
from authplane.controlplane.render.listeners.filter_chain import EXT_AUTHZ, Chain, Guard, guard_name
from authplane.controlplane.render.native.native_enforcement import Provider, possible_of, requirement_name
from authplane.controlplane.render.native.native_filters import Natives, join
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.memo import Memo, Same
from authplane.core.values import dataclass


@dataclass(frozen=True, slots=True)
class Needed:
    """What the connection manager of a table has to know."""

    chain: Chain
    tokens: Mapping[str, tuple[Provider, ...]]
    """Whose tokens are looked at once keys are there, by the name of what is wanted.

    Routes of before may want what new ones do not, on account of keys that are gone.
    """
    held: int
    """How many bytes of a request may have to wait, beside what Envoy makes room for by itself."""


class Needs:
    """Finds what connection managers have to know, for each once; with a ``memo`` nothing is found again."""

    def __init__(self, envoy: Release | None = CURRENT, memo: Memo[Same, Any] | None = None) -> None:
        self._envoy = envoy
        self._memo: Memo[Same, Needed] = memo if memo is not None else Memo()
        self._chains: dict[Chain, Chain] | None = None

    def of(self, table: RouteTable) -> Needed:
        """Return what the connection manager of a table has to know."""
        return self._memo.ensure(Same(table), None, partial(self._find, table))

    def chain(self, table: RouteTable) -> Chain:
        """Return its filters; equal ones are the same object."""
        return self.of(table).chain

    def _find(self, table: RouteTable) -> Needed:
        hosts = table.hosts
        enforced = list(checks_of(hosts))
        # Most routes ask the same service, as one object, and to compare those whole takes long.
        services = frozenset({id(each.service): each.service for each in enforced}.values())
        placed = [each for each in enforced if each.placing is not None]
        possible = ((each, possible_of(each.placing, self._envoy)) for each in placed)
        tokens = {requirement_name(each): found.providers for each, found in possible if found and found.providers}
        chain = Chain(
            guards=(*_guards(hosts, services), *_policy_guards(services, self._envoy)),
            natives=_natives(placed, self._envoy),
            strips=any(_strips(host) for host in hosts),
            mcp=any(target.mcp for forward in forwards_of(hosts) for target in forward.targets),
        )
        return Needed(self._one(chain), tokens, _held(services, chain.natives))

    def _one(self, chain: Chain) -> Chain:
        """Return equal filters as one object: every route is rendered for them, and they are compared as often."""
        if self._chains is None:
            # Most connection managers have the same ones: those are worth a look, and not each that has them.
            known = {id(each.made.chain): each.made.chain for each in self._memo.before.values()}
            self._chains = {each: each for each in known.values()}
        return self._chains.setdefault(chain, chain)


def _strips(host: Host) -> bool:
    return isinstance(host.reserved, ServiceHeaders) and any(True for _ in forwards_of([host]))


def _guards(hosts: Iterable[Host], services: frozenset[AuthorizationService]) -> Iterator[Guard]:
    """Return the filters that ask the services that authors chose.

    Usually all routes ask the same service, and the filter does. Otherwise each route names its service, and there is
    an instance of the filter for everything that a route cannot change. The names of those follow from what they do:
    a route never meets another instance under the name that it knows.
    """
    chosen = [each for each in services if not each.by_policies]
    if not chosen:
        return
    # Another route of the same host may be chosen after the check: all of them must have been worth the same check. A
    # client could send a header that leads to a route with another context, and that the service removes.
    clear = not any(isinstance(each.on_failure, Shadow) for each in chosen) and all(map(_is_steady, hosts))
    if len(chosen) == len(services) == 1:
        [service] = chosen
        yield Guard(name=EXT_AUTHZ, manner=manner_of(service), service=service, clear_route_cache=clear)
    else:
        manners = {guard_name(manner): manner for manner in map(manner_of, chosen)}
        for name in sorted(manners):
            yield Guard(name=name, manner=manners[name], service=None, clear_route_cache=clear)


def _is_steady(host: Host) -> bool:
    """Tell whether every route of a host is worth the same check."""
    given = [each for route in host.routes for each in route.authorizations]
    checks = {(id(each.service), each.context) for each in given if isinstance(each, Enforced)}
    return len(checks) == 1 and all(isinstance(each, Enforced) for each in given)


def _policy_guards(services: Iterable[AuthorizationService], envoy: Release | None) -> Iterator[Guard]:
    """Return the filter that calls the policy server, and the one that calls it for policies in shadow only.

    Routes are never chosen anew after a check: it was made for the backend that the first choice led to.
    """
    # An older Envoy has no shadow mode for checks, and would deny.
    tries_out = envoy is not None and envoy.tries_checks_out
    asked = [each for each in services if each.by_policies and (tries_out or not isinstance(each.on_failure, Shadow))]
    for each in sorted(asked, key=_policy_guard_name):
        yield Guard(name=_policy_guard_name(each), manner=manner_of(each), service=each, clear_route_cache=False)


def _policy_guard_name(service: AuthorizationService) -> str:
    return f"{EXT_AUTHZ}/shadow" if isinstance(service.on_failure, Shadow) else EXT_AUTHZ


def _natives(enforced: Sequence[Enforced], envoy: Release | None) -> Natives | None:
    """Return what Envoy may decide once it has the keys of all issuers: those come and go, and filters should not."""
    placings = [each.placing for each in enforced if each.placing is not None]
    found = [placed for each in placings if (placed := possible_of(each, envoy)) is not None]
    if envoy is None or not found:
        return None
    settings = placings[0].settings
    shared = Natives(envoy=envoy, most_bytes=settings.limits.body, denial_format=settings.denial_format)
    return join(found, shared)


def _held(services: Iterable[AuthorizationService], natives: Natives | None) -> int:
    """Return how many bytes wait for a check that goes without the rest of the body, or for the reader of messages.

    Where the whole body goes along, Envoy makes the room for it by itself.
    """
    bodies = [each.body for each in services if each.body is not None and each.body.partial]
    read = [natives.most_bytes] if natives is not None and natives.reads_mcp else []
    return max((*(each.most_bytes for each in bodies), *read), default=0)
