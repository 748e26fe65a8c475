"""Cases: what stands before a Backend, and what somebody sends to it.

Neither knows where it will run. Names that end in ``.invalid`` stand for what is only known then: issuers and hosts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

FIRST: Final = "https://first.invalid"
SECOND: Final = "https://second.invalid"
THIRD: Final = "https://third.invalid"
SPIRE: Final = "https://spire.invalid"
"""Its tokens are JWT-SVIDs of `TRUST_DOMAIN`."""
CLUSTER: Final = "https://cluster.invalid"
"""Its tokens are those of ServiceAccounts."""
ISSUERS: Final = (FIRST, SECOND, THIRD, SPIRE, CLUSTER)
STRANGER: Final = "https://stranger.invalid"
"""An issuer that nobody knows."""

HOST: Final = "set.invalid"
"""The host of a set of policies; what is below it leads to the same Backend."""
PLAIN_PORT: Final = 80
SECURE_PORT: Final = 443
"""Stand for the ports of the Gateway in rules about ports."""

NEWEST: Final = "2026-07-28"
"""The newest version of MCP, whose headers repeat what the message says."""

TRUST_DOMAIN: Final = "cluster.local"
AGENT: Final = "spiffe://cluster.local/ns/default/sa/agent"
OTHER: Final = "spiffe://cluster.local/ns/default/sa/other"
FOREIGN: Final = "spiffe://elsewhere.example/agent"
DOMAIN: Final = "spiffe://elsewhere.example"
"""The id of a trust domain, which no workload has."""

CERTIFICATES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "agent": (AGENT,),
        "other": (OTHER,),
        "foreign": (FOREIGN,),
        "domain": (DOMAIN,),
        "almost the agent": (f"{AGENT}-2",),
        "two ids": (AGENT, OTHER),
        "an address before the id": ("https://agent.example", AGENT),
        "an address": ("https://agent.example",),
        "a name": (),
        "for servers": (AGENT,),
        "for servers and clients": (AGENT,),
        "for any use": (AGENT,),
        "for code": (AGENT,),
        "for no use in particular": (AGENT,),
        "for agreeing on keys": (AGENT,),
        "for encipherment": (AGENT,),
    }
)
"""The URIs of certificates, by what they are called here; `tests.differential.certificates` makes them."""


TIDIED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "//mcp": "/mcp",
        "/mcp//x": "/mcp/x",
        "/x/../mcp": "/mcp",
        "/./mcp": "/mcp",
        "/mcp/..": "/",
        "/%6dcp": "/mcp",
        "/mcp\\x": "/mcp/x",
        "/mcp/%2e%2e/other": "/other",
    }
)
"""Paths that Envoy tidies up before it looks for a route: everybody behind it sees only what comes of them."""


class Framing(StrEnum):
    """How the end of a body is told."""

    LENGTH = "length"
    CHUNKED = "chunked"


class Rewrite(StrEnum):
    """What a route changes of requests after they are judged."""

    NOTHING = "nothing"
    PREFIX = "prefix"
    PATH = "path"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A policy without its name and its targets."""

    kind: str = "AccessPolicy"
    version: str = "v1alpha1"
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """All that stands before one Backend or Service."""

    backend: tuple[Draft, ...] = ()
    gateway: tuple[Draft, ...] = ()
    """Of the Gateway that leads there; sets with the same share one."""
    service: bool = False
    """The route leads to a Service, which only policies of the Gateway protect, and which need not speak MCP."""
    proxy: bool = False
    """The route is an HTTPProxy without authorization; it has no Backend and no Gateway."""
    weighted: bool = False
    """The route leads to two Backends with the same policies."""
    rewrite: Rewrite = Rewrite.NOTHING
    call_out: bool = False
    """An annotation of the Backend chooses the policy server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token before it is signed."""

    issuer: str = FIRST
    """In ``iss``."""
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    times: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({"exp": 3000}))
    """Claims that are times, in seconds from now."""
    signer: str = FIRST
    """Whose key signs it; `STRANGER` has one as well."""
    key: int = 0
    """Which key of the signer: see `tests.differential.minting`."""
    header: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Members of the header that are unusual; None leaves one out."""
    scheme: str = "Bearer "
    """What stands before it, with the blank."""
    defect: str = ""
    """What is done to it afterwards: see `tests.differential.minting`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as a client sends it."""

    method: str = "POST"
    path: str = "/mcp"
    host: str = HOST
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    framing: Framing = Framing.LENGTH
    http2: bool = False
    other_host: str = ""
    """In HTTP/2, the value of a header host beside the authority."""
    trailers: tuple[tuple[str, str], ...] = ()
    """Sent after a body whose framing allows it."""
    pieces: int = 1
    """In how many pieces a slow sender sends the request."""
    certificate: str = ""
    """One of `CERTIFICATES`; empty is a connection without TLS."""
    token: Token | None = None
    """Sent in Authorization."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Sets of policies that are in force together."""

    sets: tuple[PolicySet, ...]
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Of the AuthplaneConfiguration, which holds for all of them."""
    workload_tokens: bool = True
    """Tokens prove workloads as well: then certificates alone decide nothing in Envoy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request, and which of the sets it goes to."""

    place: int
    sent: Sent


@dataclass(frozen=True, slots=True)
class Answer:
    """How a request ended."""

    allowed: bool
    status: int
    """Of the response; 0 if there was none, and 200 for what is allowed."""
    changed: str = ""
    """In which other form it reached the server behind than it was judged in."""
    removed: frozenset[str] = field(default=frozenset(), compare=False)
    """Headers that the reference removes from a request that it allows."""
    why: str = field(default="", compare=False)
