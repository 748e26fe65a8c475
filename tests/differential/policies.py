"""Policies at random."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from tests.differential.expressions import EXPRESSIONS, MISTAKEN, WIDE, Calculations, is_native
from tests.differential.model import (
    AGENT,
    DOMAIN,
    FIRST,
    FOREIGN,
    HOST,
    OTHER,
    PLAIN_PORT,
    SECOND,
    SECURE_PORT,
    SPIRE,
    THIRD,
    Draft,
    PolicySet,
    Rewrite,
    World,
)
from tests.differential.site import gateways_of
from tests.support.authservers.external_answers import PORT, SERVICE

TOOLS: Final = ("add", "read_file", "wipe", "Add", "tëst", "a b")
METHODS: Final = ("tools/call", "tools/list", "resources/read", "prompts/get", "tools", "resources", "initialize")
PLAIN: Final = tuple(each for each in EXPRESSIONS if "request.mcp" not in each)
"""Those that do not read bodies."""
KINDS: Final = (("AccessPolicy", "v1alpha1"),) * 5 + (("XAccessPolicy", "v0alpha0"), ("XAccessPolicy", "v1alpha1"))
V1: Final = ("XAccessPolicy", "v1alpha1")
"""Its rules grant no base protocol unless they say so: others read the bodies of all requests for that."""

SETTINGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"policyComposition": "Any"},
    {"unprotectedBackends": "Allow", "maxRequestBody": 4096},
    {"denialFormat": "jsonrpc200", "maxRequestBody": 200_000},
)


class Policies:
    """Makes policies; the same ones for the same numbers."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 (the same cases every time)

    def world(self, sets: int, settings: dict[str, Any], *, workload_tokens: bool = True) -> World:
        """Make so many sets; there are four Gateways, of which one has no policy, and one none that reads bodies."""
        drafts = _Drafts(self._random, certificates=not workload_tokens)
        plain, loose = replace(drafts, plain=True), replace(drafts, loose=True)
        second = loose if self._random.random() < 0.05 else drafts
        gateways = ((), (drafts.draft(wide=True),), (second.draft(wide=True), drafts.draft(wide=True)))
        quiet = ((), (plain.draft(wide=True),))
        made = []
        for _ in range(sets):
            kind = self._random.random()
            if kind < 0.02:
                made.append(PolicySet(proxy=True))
            elif kind < 0.1:
                made.append(PolicySet(gateway=self._random.choice((*gateways[1:], *quiet[1:])), service=True))
            elif kind < 0.3:
                gateway = quiet[self._random.choice((0, 0, 0, 1))]
                made.append(PolicySet(backend=plain.some(), gateway=gateway, **self._route()))
            else:
                before = gateways[self._random.choice((0, 0, 0, 0, 1, 2))]
                backend = (loose if kind < 0.35 else drafts).some()
                made.append(PolicySet(backend=backend, gateway=before, **self._route()))
        return World(sets=tuple(made), settings=settings, workload_tokens=workload_tokens)

    def changed(self, world: World) -> World:
        """Let Backends behind the same Gateway swap their policies, and some of them their placement."""
        made = list(world.sets)
        for gateway in gateways_of(world):
            places = [
                place for place, each in enumerate(made) if each.gateway == gateway and not (each.service or each.proxy)
            ]
            others = self._random.sample(places, len(places))
            swapped = {place: world.sets[other].backend for place, other in zip(places, others, strict=True)}
            for place, backend in swapped.items():
                call_out = made[place].call_out ^ (self._random.random() < 0.1)
                kept = self._random.random() < 0.5
                made[place] = replace(made[place], backend=made[place].backend if kept else backend, call_out=call_out)
        return replace(world, sets=tuple(made))

    def _route(self) -> dict[str, Any]:
        chance = self._random
        rewrite = chance.choice(tuple(Rewrite)) if chance.random() < 0.2 else Rewrite.NOTHING
        return {"weighted": chance.random() < 0.1, "rewrite": rewrite, "call_out": chance.random() < 0.01}


@dataclass(frozen=True, slots=True)
class _Drafts:
    """Makes the policies of one target."""

    chance: Random
    plain: bool = False
    """They neither read bodies nor call external services."""
    loose: bool = False
    """They have whatever there is. Of others, Envoy decides nearly every entry."""
    certificates: bool = True
    """Envoy decides about workloads: their certificates alone identify them."""
    asks: float = 0.5
    """How often an expression is kept that only the policy server decides."""

    def some(self) -> tuple[Draft, ...]:
        enforced = tuple(self.draft() for _ in range(self.chance.choice((0, *(1,) * 10, 2, 2, 2, 3))))
        if self.chance.random() > 0.12:
            return enforced
        tried = replace(self, asks=0.05).draft()
        return (*enforced, replace(tried, spec={"mode": "Shadow", **tried.spec}))

    def draft(self, *, wide: bool = False) -> Draft:
        kind, version = V1 if self.plain else self.chance.choice(KINDS)
        rules = [self._rule((kind, version)) for _ in range(self.chance.choice((0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4)))]
        if wide:
            rules.append({"authorization": [{"type": "CEL", "cel": self.chance.choice(WIDE)}]})
        screens = (kind, version) == V1 and self.loose and self.chance.random() < 0.6
        more = {"action": "ExternalAuth", "externalAuth": self._external()} if screens else {}
        return Draft(kind=kind, version=version, spec={**more, "rules": rules})

    def _rule(self, version: tuple[str, str]) -> dict[str, Any]:
        rule: dict[str, Any] = {}
        source = self._source()
        if source is not None:
            rule["source"] = source
        if self.chance.random() < 0.03:
            return rule
        entries = [self._entry(version) for _ in range(self.chance.choice((0, *(1,) * 16, 2, 2, 2, 3)))]
        if entries or self.chance.random() < 0.5:
            rule["authorization"] = entries
        return rule

    def _source(self) -> dict[str, Any] | None:
        kind = self.chance.random()
        if kind < 0.1:
            return None
        workload = self.certificates or self.loose or self.chance.random() < 0.03
        if kind < 0.3 and workload:
            domains = (DOMAIN, [DOMAIN, AGENT]) if self.loose else ()
            ids = self.chance.choice((AGENT, AGENT, AGENT, OTHER, FOREIGN, [OTHER, AGENT], *domains))
            return {"type": "SPIFFE", "spiffe": ids}
        if kind < 0.45 and workload:
            account = self.chance.choice(({"name": "agent"}, {"name": "other", "namespace": "default"}, "x/agent"))
            return {"type": "ServiceAccount", "serviceAccount": account}
        oidc: dict[str, Any] = {"issuerUrl": self.chance.choice((FIRST, FIRST, SECOND, THIRD, SPIRE))}
        audiences = self.chance.choice(((), ("shop",), ("shop",), ("shop", "desk"), ("https://shop.example/",)))
        scopes = self.chance.choice(((), (), ("tools",), ("tools", "admin")))
        if audiences:
            oidc["audiences"] = list(audiences)
        if scopes:
            oidc["scopes"] = list(scopes)
        return {"type": "OIDC", "oidc": oidc}

    def _entry(self, version: tuple[str, str]) -> dict[str, Any]:
        kind = self.chance.random()
        if self.plain:
            return self._cel() if kind < 0.7 else self._inline()
        if kind < 0.4:
            return self._cel()
        if kind < 0.55 and version != V1 and self.loose:
            return {"type": "ExternalAuth", "externalAuth": self._external()}
        # The later XAccessPolicy has no list of tools, and Inline instead.
        inline = version == V1 or kind < 0.55
        return self._inline() if inline else {"type": "InlineTools", "tools": self._tools()}

    def _tools(self) -> list[str]:
        return ["*"] if self.chance.random() < 0.15 else self._some(TOOLS)

    def _external(self) -> dict[str, Any]:
        name = SERVICE if self.chance.random() < 0.9 else "gone"
        made: dict[str, Any] = {"protocol": "GRPC", "backendRef": {"name": name, "port": PORT}}
        size = self.chance.choice((0, 0, 0, 16, 8192, 8192))
        return {**made, "forwardBody": {"maxSize": size}} if size else made

    def _cel(self) -> dict[str, Any]:
        if self.loose and self.chance.random() < 0.05:
            return {"type": "CEL", "cel": self.chance.choice(MISTAKEN)}
        while True:
            calculates = self.chance.random() < 0.25
            text = Calculations(self.chance).text() if calculates else self.chance.choice(self._expressions)
            if self.loose or is_native(text) or self.chance.random() < self.asks:
                return {"type": "CEL", "cel": text}

    @property
    def _expressions(self) -> tuple[str, ...]:
        return PLAIN if self.plain else EXPRESSIONS

    def _inline(self) -> dict[str, Any]:
        chance = self.chance
        entry: dict[str, Any] = {"type": "Inline"}
        parts = {
            "methods": lambda: self._some(("POST", "GET", "DELETE")),
            "paths": lambda: self._some(("/mcp", "/mcp/*", "/other", "/*")),
            "hosts": lambda: self._some((HOST, f"alt.{HOST}", "*.example")),
            "headers": lambda: [{"name": "x-team", "value": chance.choice(("red", "blue"))}],
            "ports": lambda: self._some((PLAIN_PORT, SECURE_PORT)),
            "mcp": self._mcp,
        }
        if self.plain:
            del parts["mcp"]
        for name in chance.sample(sorted(parts), chance.choice((1, 1, 2, 3))):
            entry[name] = parts[name]()
        return entry

    def _mcp(self) -> dict[str, Any]:
        chance = self.chance
        methods = []
        for name in self._some(METHODS):
            named = name in {"tools/call", "prompts/get", "resources/read"} and chance.random() < 0.6
            methods.append({"name": name, **({"params": self._some(TOOLS[:3])} if named else {})})
        made: dict[str, Any] = {"methods": methods}
        option = chance.choice(("", "", "MATCH_BASE_PROTOCOL_METHODS", "SKIP_BASE_PROTOCOL_METHODS"))
        return {**made, "mcpBaseProtocolMethodsOption": option} if option else made

    def _some(self, values: tuple[Any, ...]) -> list[Any]:
        return self.chance.sample(values, self.chance.randint(1, min(3, len(values))))
