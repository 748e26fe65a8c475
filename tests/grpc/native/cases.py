"""Policies for a gRPC server and calls to it, drawn at random: the same number gives the same ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from tests.support.policies.external_services import SERVICES, asks, external
from tests.support.policies.names import AGENT, ISSUER, OTHER

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]

GET: Final = "/shop.Orders/Get"
PATHS: Final = (
    GET, "/shop.Orders/Put", "/shop.OrdersX/Get", "/other.Service/Do", "/shop.Orders//Get", "/shop.Orders/.",
    "/shop.Orders/..", "/shop.Orders/%47et", "/shop.Orders/a%20b", "/shop.Orders/Get;a=b", "/shop.Orders/Get?a=b",
    "/SHOP.Orders/Get", "/shop.Orders/é", "/./Get", "/shop.Orders/Get%00", r"/shop.Orders/a\..\Get", "/",
)  # fmt: skip
"""Some are such as servers read in different ways."""
PLAIN_PATHS: Final = frozenset(PATHS[:4])
PLAIN_NAMES: Final = frozenset({"x-a", "x-a-b-c-d-e", "x-b-bin", "x-long", "x-team", "x-user"})
PATTERNS: Final = (
    GET, "/shop.Orders/Put", "/shop.Orders/*", "/shop.*", "/*", "/other.Service/Do", "/shop.Orders/..",
    "/shop.Orders/a%20b", "/shop.Orders/Get;a=b",
)  # fmt: skip
HEADERS: Final = (
    *("x-a: b",) * 8, "x-a: c", "x-a: 'b,c'", "x_a: b", "X-A: b", "x-a: ''", "x-b-bin: AQI", "te: trailers",
    "content-type: application/grpc", "x-a-b-c-d-e: b", "grpc-x: b", "x-a: ' b'",
)  # fmt: skip
EXPRESSIONS: Final = (
    "true",
    f'request.path == "{GET}"',
    f'request.path == "{GET}" && request.headers["x-a"] == "b"',
    f'request.path != "{GET}"',
    f'!(request.url_path == "{GET}")',
    'request.path.startsWith("/shop.")',
    'request.path.matches("^/shop[.]Orders/[A-Z]")',
    'request.path.endsWith("Get") && size(request.path) > 3',
    'request.method == "POST" && request.query == ""',
    'request.query == "a=b"',
    'request.headers["x-a"] == "b"',
    '!(request.headers["x-a"] == "b")',
    'request.headers["x-a"].contains(",")',
    'request.headers["X-A"] == "b"',
    '"x-a" in request.headers',
    '!("x-a" in request.headers)',
    'has(request.headers.missing) || request.headers["x-a"] in ["b", "c"]',
    'request.headers["missing"] == "b" || request.path.startsWith("/")',
    'request.headers["x-b-bin"] == "AQI"',
    'request.headers["te"] == "trailers"',
    'request.headers["content-type"] == "application/grpc"',
    'request.headers["authorization"] != ""',
    "size(request.headers) > 100",
    'request.headers.exists(name, name == "x-a")',
    'request.path == "/z" ? true : request.path.startsWith("/shop")',
    f'identity.spiffe_id == "{AGENT}"',
    "has(identity.sub)",
    'identity.namespace == "default"',
    'request.time > timestamp("2020-01-01T00:00:00Z")',
    'request.path + "x" == "/shop.Orders/Getx"',
    "has(request.path)",
    '1 / (size(request.path) - 17) > 100 || request.headers["x-a"] == "b"',
)
SOURCES: Final = (
    *("",) * 2,
    *(f"source: {{type: SPIFFE, spiffe: {AGENT}}}, ",) * 3,
    f"source: {{type: SPIFFE, spiffe: {OTHER}}}, ",
    f"source: {{type: SPIFFE, spiffe: ['{AGENT}', '{OTHER}']}}, ",
    "source: {type: ServiceAccount, serviceAccount: default/agent}, ",
    f"source: {{type: OIDC, oidc: {{issuerUrl: '{ISSUER}', audiences: [shop]}}}}, ",
)
WORKLOAD_TOKENS: Final = f"issuers: [{{url: '{ISSUER}', jwtSvids: {{trustDomain: cluster.local, audiences: [shop]}}}}]"
SENT: Final[tuple[Metadata, ...]] = (
    *((),) * 6,
    *((("x-a", "b"),),) * 6,
    *((("x-a", "c"),),) * 2,
    (("x-a", "b"), ("x-a", "b")),
    (("x-a", "b"), ("x-a", "c")),
    (("x-a", "b,c"),),
    (("x_a", "b"),),
    (("x-a", "b"), ("x_a", "c")),
    (("x-a", "b"), ("x_a_b-c-d-e", "c"), ("x-a-b-c-d-e", "b")),
    (("x-a-b-c-d-e", "b"),),
    (("x-a", ""),),
    (("x-b-bin", b"\x01\x02"), ("x-a", "b")),
    (("x-spiffe-id", AGENT), ("x-a", "b")),
    (("x_forwarded-client_cert", "a"), ("x-a", "b")),
    (("remote_user", "root"),),
    (("authorization", "Bearer a.b.c"), ("x-a", "b")),
    (("authorization", "Basic YTpi"),),
    (("x-team", "red"),),
    (("x-team", "red"), ("x-user", "eve")),
    (("x-long", "a" * 300), ("x-a", "b")),
)
CALLERS: Final = (
    "agent",
    "agent",
    "agent",
    "other",
    "both",
    "twice",
    "host",
    "domain",
    "nobody",
    "authority",
    "signer",
)
"""Whose certificate is shown: see `callers.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """What is said of one server."""

    settings: str
    policies: tuple[str, ...]

    def documents(self, backend: str, settings: str) -> tuple[str, ...]:
        """Write it down, with what is said of the server."""
        whole = f"""
apiVersion: authplane.dev/v1alpha1
kind: AuthplaneConfiguration
metadata: {{name: authplane}}
spec: {{{settings}, {self.settings}}}
"""
        return (whole, backend, SERVICES, *self.policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A call."""

    path: str
    metadata: Metadata
    caller: str


def draw_set(chance: Random, port: int) -> PolicySet:
    """Draw what is said of a server; most sets are such as a server may judge in part."""
    settings = [f"policyComposition: {chance.choice(('All', 'All', 'Any'))}"]
    if chance.random() < 0.15:
        settings.append(WORKLOAD_TOKENS)
    count = chance.choice((1, 1, 1, 1, 2, 2, 3))
    return PolicySet(
        settings=", ".join(settings),
        policies=tuple(_policy(chance, f"p{number}", port) for number in range(count)),
    )


def is_plain(sent: Sent) -> bool:
    """Tell whether nothing about a call is odd, so that a server may judge it."""
    names = [name for name, _ in sent.metadata]
    return sent.path in PLAIN_PATHS and PLAIN_NAMES.issuperset(names) and len(set(names)) == len(names)


def draw_calls(chance: Random, count: int) -> Iterator[Sent]:
    """Draw calls; half of them are to the path that most rules are for."""
    for _ in range(count):
        yield Sent(
            path=GET if chance.random() < 0.5 else chance.choice(PATHS),
            metadata=chance.choice(SENT),
            caller=chance.choice(CALLERS),
        )


def _policy(chance: Random, name: str, port: int) -> str:
    roll = chance.random()
    kind, more = "AccessPolicy", ""
    if roll < 0.04:
        kind, more = "XAccessPolicy", f", action: ExternalAuth, externalAuth: {external()}"
    rules = ", ".join(_rule(chance, port, number) for number in range(chance.choice((1, 1, 2, 2, 3))))
    if roll > 0.97:
        rules = "{authorization: [{type: InlineTools, tools: [add]}]}"
    return f"""
apiVersion: agentic.networking.x-k8s.io/v1alpha1
kind: {kind}
metadata: {{name: {name}}}
spec: {{targetRefs: [{{kind: Backend, name: shop}}], rules: [{rules}]{more}}}
"""


def _rule(chance: Random, port: int, number: int) -> str:
    entries = [_entry(chance, port) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 2, 3, 3)))]
    return f"{{name: r{number}, {chance.choice(SOURCES)}authorization: [{', '.join(entries)}]}}"


def _entry(chance: Random, port: int) -> str:
    roll = chance.random()
    if roll < 0.4:
        return f"{{type: CEL, cel: {{expression: {_quoted(chance.choice(EXPRESSIONS))}}}}}"
    if roll < 0.46:
        return asks()
    parts = []
    if chance.random() < 0.7:
        chosen = (*chance.sample(PATTERNS, chance.choice((1, 2))), *((GET,) if chance.random() < 0.4 else ()))
        parts.append(f"paths: [{', '.join(map(_quoted, chosen))}]")
    if chance.random() < 0.15:
        parts.append(f"methods: [{chance.choice(('POST', 'GET', 'GET, POST'))}]")
    if chance.random() < 0.35 or not parts:
        written = chance.sample(HEADERS, chance.choice((1, 1, 2)))
        pairs = (each.split(": ", 1) for each in written)
        parts.append(f"headers: [{', '.join(f'{{name: {name}, value: {value}}}' for name, value in pairs)}]")
    if chance.random() < 0.08:
        parts.append(f"ports: [{chance.choice((port, 1))}]")
    return f"{{type: Inline, {', '.join(parts)}}}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
