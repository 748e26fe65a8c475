"""Policies at random."""

from random import Random
from typing import Any, Final

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
    World,
)
from tests.support.authservers.external_answers import PORT, SERVICE

TOOLS: Final = ("add", "read_file", "wipe", "Add", "tëst", "a b")
EXPRESSIONS: Final = (
    "true",
    'request.mcp.tool_name == "add"',
    'request.mcp.tool_name.startsWith("read_")',
    'request.mcp.tool_name in ["add", "wipe"]',
    'request.mcp.method == "tools/call"',
    'request.mcp.method.startsWith("resources/")',
    'request.mcp.method != "tools/call"',
    '!(request.mcp.tool_name == "wipe")',
    'has(request.mcp.tool_name) && request.mcp.tool_name != "wipe"',
    "has(request.mcp.params.a) && request.mcp.params.a == 1",
    "request.mcp.params.a < 10",
    'request.mcp.params.path.matches("^/tmp/[a-z]+$")',
    'has(request.mcp.params.list) && request.mcp.params.list.exists(x, x == "x")',
    "has(request.mcp.params.list) && size(request.mcp.params.list) > 1",
    'has(request.mcp.params.deep) && request.mcp.params.deep.x.y == "z"',
    'has(identity.group) && identity.group == "admin"',
    'identity.group == "admin"',
    '!(identity.group == "blocked")',
    'identity.sub == "ann"',
    'identity.aud == "shop"',
    '"shop" in identity.aud',
    "has(identity.tools) && request.mcp.tool_name in identity.tools",
    "identity.level > 3",
    "type(identity.level) == int",
    "string(identity.org) == string(identity.owner_org)",
    'string(identity.org) == "1234567"',
    "timestamp(int(identity.until)) > request.time",
    "timestamp(identity.until) > request.time",
    'request.time + duration(identity.until) > request.time + duration("1h")',
    f'identity.iss == "{FIRST}"',
    'has(identity.spiffe_id) && identity.spiffe_id.endsWith("/agent")',
    'has(identity.service_account) && identity.service_account == "agent"',
    'request.path == "/mcp"',
    'request.path.startsWith("/mcp")',
    'request.query.contains("admin")',
    f'request.host == "{HOST}"',
    'request.method == "POST"',
    'request.method in ["GET", "DELETE"]',
    '"x-team" in request.headers && request.headers["x-team"] == "red"',
    'request.headers["x-team"] != "blue"',
    'request.headers.exists(name, name == "x-admin")',
    '"mcp-session-id" in request.headers',
    'request.headers["content-type"] == "application/json"',
    'request.headers["user-agent"].contains("agent")',
    'request.time > timestamp("2020-01-01T00:00:00Z")',
    "request.time.getFullYear() < 2020",
    'request.mcp.tool_name == "add" || identity.group == "admin"',
    'request.mcp.tool_name + "x" == "addx"',
)  # fmt: skip
PLAIN: Final = tuple(each for each in EXPRESSIONS if "request.mcp" not in each)
"""Those that do not read bodies."""
MISTAKEN: Final = ("1 == 1.0", "request.body.x == 1", "request.mcp.tool_name ==", "identity", '"a"')
"""A policy with one of these denies what it protects."""
WIDE: Final = ("true", 'request.method == "POST"', '!request.path.startsWith("/other")')
"""What Gateways let through, as long as nobody else has a say."""
METHODS: Final = ("tools/call", "tools/list", "resources/read", "prompts/get", "tools", "resources", "initialize")
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
        every, plain = _Drafts(self._random), _Drafts(self._random, plain=True)
        gateways = ((), (every.draft(wide=True),), (every.draft(wide=True), every.draft(wide=True)))
        quiet = ((), (plain.draft(wide=True),))
        made = []
        for _ in range(sets):
            kind = self._random.random()
            if kind < 0.1:
                made.append(PolicySet(gateway=self._random.choice((*gateways[1:], *quiet[1:])), service=True))
            elif kind < 0.45:
                made.append(PolicySet(backend=plain.some(), gateway=quiet[self._random.choice((0, 0, 0, 1))]))
            else:
                made.append(PolicySet(backend=every.some(), gateway=gateways[self._random.choice((0, 0, 0, 0, 1, 2))]))
        return World(sets=tuple(made), settings=settings, workload_tokens=workload_tokens)


class _Drafts:
    """Makes the policies of one target; plain ones neither read bodies nor ask anybody."""

    def __init__(self, chance: Random, *, plain: bool = False) -> None:
        self._random = chance
        self._plain = plain

    def some(self) -> tuple[Draft, ...]:
        return tuple(self.draft() for _ in range(self._random.choice((0, *(1,) * 10, 2, 2, 2, 3))))

    def draft(self, *, wide: bool = False) -> Draft:
        kind, version = V1 if self._plain else self._random.choice(KINDS)
        rules = [self._rule((kind, version)) for _ in range(self._random.choice((0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4)))]
        if wide:
            rules.append({"authorization": [{"type": "CEL", "cel": self._random.choice(WIDE)}]})
        screens = (kind, version) == V1 and not self._plain and self._random.random() < 0.25
        more = {"action": "ExternalAuth", "externalAuth": self._external()} if screens else {}
        return Draft(kind=kind, version=version, spec={**more, "rules": rules})

    def _rule(self, version: tuple[str, str]) -> dict[str, Any]:
        rule: dict[str, Any] = {}
        source = self._source()
        if source is not None:
            rule["source"] = source
        if self._random.random() < 0.03:
            return rule
        entries = [self._entry(version) for _ in range(self._random.choice((0, *(1,) * 16, 2, 2, 2, 3)))]
        if entries or self._random.random() < 0.5:
            rule["authorization"] = entries
        return rule

    def _source(self) -> dict[str, Any] | None:
        kind = self._random.random()
        if kind < 0.1:
            return None
        if kind < 0.3:
            ids = self._random.choice((AGENT, AGENT, AGENT, OTHER, FOREIGN, [OTHER, AGENT], DOMAIN, [DOMAIN, AGENT]))
            return {"type": "SPIFFE", "spiffe": ids}
        if kind < 0.45:
            account = self._random.choice(({"name": "agent"}, {"name": "other", "namespace": "default"}, "x/agent"))
            return {"type": "ServiceAccount", "serviceAccount": account}
        oidc: dict[str, Any] = {"issuerUrl": self._random.choice((FIRST, FIRST, SECOND, THIRD, SPIRE))}
        audiences = self._random.choice(((), ("shop",), ("shop",), ("shop", "desk"), ("https://shop.example/",)))
        scopes = self._random.choice(((), (), ("tools",), ("tools", "admin")))
        if audiences:
            oidc["audiences"] = list(audiences)
        if scopes:
            oidc["scopes"] = list(scopes)
        return {"type": "OIDC", "oidc": oidc}

    def _entry(self, version: tuple[str, str]) -> dict[str, Any]:
        kind = self._random.random()
        if self._plain:
            return self._cel() if kind < 0.7 else self._inline()
        if kind < 0.4:
            return self._cel()
        if kind < 0.48 and version != V1:
            return {"type": "ExternalAuth", "externalAuth": self._external()}
        # The later XAccessPolicy has no list of tools, and Inline instead.
        inline = version == V1 or kind < 0.55
        return self._inline() if inline else {"type": "InlineTools", "tools": self._tools()}

    def _tools(self) -> list[str]:
        return ["*"] if self._random.random() < 0.15 else self._some(TOOLS)

    def _external(self) -> dict[str, Any]:
        name = SERVICE if self._random.random() < 0.9 else "gone"
        made: dict[str, Any] = {"protocol": "GRPC", "backendRef": {"name": name, "port": PORT}}
        size = self._random.choice((0, 0, 0, 16, 8192, 8192))
        return {**made, "forwardBody": {"maxSize": size}} if size else made

    def _cel(self) -> dict[str, Any]:
        mistaken = self._random.random() < 0.015
        expressions = PLAIN if self._plain else EXPRESSIONS
        return {"type": "CEL", "cel": self._random.choice(MISTAKEN if mistaken else expressions)}

    def _inline(self) -> dict[str, Any]:
        chance = self._random
        entry: dict[str, Any] = {"type": "Inline"}
        parts = {
            "methods": lambda: self._some(("POST", "GET", "DELETE")),
            "paths": lambda: self._some(("/mcp", "/mcp/*", "/other", "/*")),
            "hosts": lambda: self._some((HOST, f"alt.{HOST}", "*.example")),
            "headers": lambda: [{"name": "x-team", "value": chance.choice(("red", "blue"))}],
            "ports": lambda: self._some((PLAIN_PORT, SECURE_PORT)),
            "mcp": self._mcp,
        }
        if self._plain:
            del parts["mcp"]
        for name in chance.sample(sorted(parts), chance.choice((1, 1, 2, 3))):
            entry[name] = parts[name]()
        return entry

    def _mcp(self) -> dict[str, Any]:
        chance = self._random
        methods = []
        for name in self._some(METHODS):
            named = name in {"tools/call", "prompts/get", "resources/read"} and chance.random() < 0.6
            methods.append({"name": name, **({"params": self._some(TOOLS[:3])} if named else {})})
        made: dict[str, Any] = {"methods": methods}
        option = chance.choice(("", "", "MATCH_BASE_PROTOCOL_METHODS", "SKIP_BASE_PROTOCOL_METHODS"))
        return {**made, "mcpBaseProtocolMethodsOption": option} if option else made

    def _some(self, values: tuple[Any, ...]) -> list[Any]:
        return self._random.sample(values, self._random.randint(1, min(3, len(values))))
