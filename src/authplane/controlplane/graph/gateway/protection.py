"""What AccessPolicies protect: which requests are checked, and which tokens they need.

A target that a policy names is checked, even if the policy is invalid: the policy server decides what it grants. A
policy that cannot be read at all counts for everything that it might name. A policy in shadow protects nothing and
requires no token: only its targets are known, because it is evaluated there.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from authplane.core.names import ObjectName
from authplane.core.problems import Problems
from authplane.core.values import dataclass
from authplane.policy.compile.policy_drafts import is_shadow
from authplane.policy.identity.tokens.issuer_url import parse_issuer_url
from authplane.policy.mcp.challenge import fit_scope, fit_url
from authplane.policy.rules.policy_targets import BACKENDS, Written, meant_kind, written_policies
from authplane.resources.documents import Resources
from authplane.resources.kinds.agentic import AccessRule

_WHOLE: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The issuers and scopes of the tokens that policies accept; each once, sorted."""

    issuers: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()

    def __or__(self, other: "Tokens") -> "Tokens":
        return Tokens(issuers=_joined(self.issuers, other.issuers), scopes=_joined(self.scopes, other.scopes))


NO_TOKENS: Final = Tokens()


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """Everything that policies name."""

    backends: Mapping[ObjectName, Tokens] = field(default_factory=lambda: MappingProxyType({}))
    """Backends and XBackends alike."""
    listeners: Mapping[tuple[ObjectName, str], Tokens] = field(default_factory=lambda: MappingProxyType({}))
    """By Gateway and the name of the listener; an empty name is every one."""
    namespaces: frozenset[str] = frozenset()
    """Where a policy cannot be read, nor what it protects."""
    everything: bool = False
    """There may be a policy of which nothing is known."""
    shadowed_backends: frozenset[ObjectName] = frozenset()
    """Those that policies in shadow name, whether others do or not."""
    shadowed_listeners: frozenset[tuple[ObjectName, str]] = frozenset()
    """The same, as in ``listeners``."""

    def backend(self, name: ObjectName) -> Tokens | None:
        """Return which tokens the policies of a Backend accept; None if it has no policy."""
        known = self.backends.get(name)
        return NO_TOKENS if known is None and self._uncertain(name) else known

    def listener(self, gateway: ObjectName, section: str) -> Tokens | None:
        """Return which tokens the policies of a listener accept; None if it has no policy."""
        found = [each for key in (_WHOLE, section) if (each := self.listeners.get((gateway, key))) is not None]
        if not found:
            return NO_TOKENS if self._uncertain(gateway) else None
        return _all(found)

    def shadows_backend(self, name: ObjectName) -> bool:
        """Tell whether a Backend has a policy in shadow, which is evaluated and not enforced."""
        return name in self.shadowed_backends

    def shadows_listener(self, gateway: ObjectName, section: str) -> bool:
        """Tell the same of a listener."""
        return any((gateway, key) in self.shadowed_listeners for key in (_WHOLE, section))

    def _uncertain(self, name: ObjectName) -> bool:
        return self.everything or name.namespace in self.namespaces


NOTHING_PROTECTED: Final = Protection()


def read_protection(resources: Resources) -> Protection:
    """Gather what all policies name."""
    backends: dict[ObjectName, list[Tokens]] = defaultdict(list)
    listeners: dict[tuple[ObjectName, str], list[Tokens]] = defaultdict(list)
    shadows: list[Written] = []
    addresses: dict[str, str] = {}
    for _, policy in written_policies(resources):
        if is_shadow(policy):
            shadows.append(policy)
            continue
        tokens = _tokens(policy, addresses)
        for named in _named(policy, resources):
            if isinstance(named, ObjectName):
                backends[named].append(tokens)
            else:
                listeners[named].append(tokens)
    unread = set()
    for policy_ref, targets in resources.broken_policies.items():
        if targets is None:
            unread.add(policy_ref.namespace)
        for target in targets or ():
            kind = meant_kind(target.kind)
            if kind in BACKENDS:
                backends[target.object_name].append(NO_TOKENS)
            elif kind == "Gateway":
                listeners[target.object_name, _WHOLE].append(NO_TOKENS)
    shadowed = {named for policy in shadows for named in _named(policy, resources)}
    return Protection(
        backends=MappingProxyType({name: _all(found) for name, found in backends.items()}),
        listeners=MappingProxyType({key: _all(found) for key, found in listeners.items()}),
        namespaces=frozenset(unread),
        everything=bool(resources.doubt),
        shadowed_backends=frozenset(each for each in shadowed if isinstance(each, ObjectName)),
        shadowed_listeners=frozenset(each for each in shadowed if not isinstance(each, ObjectName)),
    )


def _named(policy: Written, resources: Resources) -> Iterator[ObjectName | tuple[ObjectName, str]]:
    """Yield the Backends and the listeners that a policy names."""
    for ref in policy.spec.target_refs:
        name, kind = ObjectName(policy.metadata.namespace, ref.name), meant_kind(ref.kind)
        if kind in BACKENDS:
            yield name
        elif kind == "Gateway":
            yield name, _section(resources, name, ref.section_name)


def _section(resources: Resources, gateway: ObjectName, written: str) -> str:
    """Return the listener that a policy means; one that is not there might be any."""
    known = resources.gateways.get(gateway)
    return written if known is not None and any(each.name == written for each in known.spec.listeners) else _WHOLE


def _tokens(policy: Written, addresses: dict[str, str]) -> Tokens:
    issuers: set[str] = set()
    scopes: set[str] = set()
    for url, asked in _sources(policy.spec.rules, addresses):
        issuers.add(url)
        scopes.update(scope for scope in asked if fit_scope(scope))
    return Tokens(issuers=tuple(sorted(issuers)), scopes=tuple(sorted(scopes)))


def _sources(rules: Iterable[AccessRule], addresses: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the issuers that rules name; many rules name few, so each of the ``addresses`` is read once."""
    for rule in rules:
        oidc = rule.source.oidc if rule.source is not None else None
        if oidc is None:
            continue
        written = oidc.issuer_url
        if written not in addresses:
            addresses[written] = _issuer(written)
        if addresses[written]:
            yield addresses[written], oidc.scopes


def _issuer(written: str) -> str:
    """Return the address of an issuer; empty if it has none that can be published."""
    # The policy compiler reports what is wrong with an address.
    issuer = parse_issuer_url(written, Problems())
    return issuer.url if issuer is not None and fit_url(issuer.url) else ""


def _all(found: Iterable[Tokens]) -> Tokens:
    joined = NO_TOKENS
    for each in found:
        joined |= each
    return joined


def _joined(these: tuple[str, ...], those: tuple[str, ...]) -> tuple[str, ...]:
    return these if not those else tuple(sorted({*these, *those}))
