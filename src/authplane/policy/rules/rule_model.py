"""Rules as values: who may do what, the same for every enforcement point."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.cel.check.program import Program
from authplane.cel.syntax.read_members import NOTHING, Members, find_members
from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.identity.workload_identity.service_account import ServiceAccount
from authplane.policy.mcp.base_methods import BaseMode
from authplane.policy.rules.external_service import Destination

# --- Sources


@dataclass(frozen=True, slots=True)
class AnySource:
    """Every sender, with an empty identity."""


@dataclass(frozen=True, slots=True)
class Spiffe:
    """Workloads with one of these ids, to the letter."""

    ids: frozenset[str]
    issuers: frozenset[str] = frozenset()
    """The addresses of the issuers whose tokens can prove one of them; a certificate always can."""


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount: by its id in our trust domain, or by a token that the cluster made for it."""

    account: ServiceAccount
    spiffe_id: str
    issuers: frozenset[str] = frozenset()
    """The addresses of the issuers whose tokens can prove it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Oidc:
    """A sender with a token of this issuer, for one of these audiences, with one of these scopes."""

    issuer: IssuerUrl
    audiences: frozenset[str] = frozenset()
    """Empty does not look at the audience."""
    scopes: tuple[str, ...] = ()
    """Any one suffices; empty requires none."""
    names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.issuer.names())


Source: TypeAlias = AnySource | Spiffe | Account | Oidc


def issuers_of(source: Source) -> frozenset[str]:
    """Return the URLs of the issuers whose tokens can identify this source."""
    match source:
        case AnySource():
            return frozenset()
        case Spiffe(issuers=issuers) | Account(issuers=issuers):
            return issuers
        case Oidc(issuer=issuer):
            return frozenset({issuer.url})


# --- What is granted


@dataclass(frozen=True, slots=True)
class Tools:
    """Calls of these tools, to the letter, and nothing else."""

    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class AllTools:
    """Calls of every tool, and nothing else."""


@dataclass(frozen=True, slots=True)
class Method:
    """An MCP method, and the names, addresses or ids it may be about; None is any."""

    name: str
    subjects: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """All methods whose names begin so: ``tools/``."""

    prefix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class McpGrant:
    """Calls of any of these methods, and of the base protocol if ``base`` is set."""

    methods: tuple[Method | Family, ...] = ()
    base: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """Requests that meet every condition given here; an empty or None part is no condition."""

    mcp: McpGrant | None = None
    methods: frozenset[str] = frozenset()
    """HTTP methods."""
    paths: tuple[str, ...] = ()
    """Whole paths, or beginnings that end with ``*``."""
    headers: tuple[tuple[str, str], ...] = ()
    """All must be there with this value alone; names in lower case."""
    hosts: tuple[str, ...] = ()
    """Whole names, or ``*.`` before what they end with; in lower case."""
    ports: frozenset[int] = frozenset()
    """Of the listener that the request came to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """Requests for which an expression is true."""

    program: Program
    message: str = ""
    """Said to a client that is denied because it is not."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Requests that an external service allows."""

    destination: Destination


@dataclass(frozen=True, slots=True)
class Everything:
    """Every request."""


Entry: TypeAlias = Tools | AllTools | Inline | Expression | Asked | Everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Grants a source what any of the entries grants."""

    name: str
    source: Source
    entries: tuple[Entry, ...] = ()
    base: bool = False
    """Whether the source may use the base protocol because it is granted something."""
    cheap: tuple[tuple[str, Entry], ...] = field(init=False, repr=False, compare=False)
    """The entries that need no external service, with their names."""
    asked: tuple[tuple[str, Asked], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        entries = tuple((entry_words(entry, index), entry) for index, entry in enumerate(self.entries))
        object.__setattr__(self, "cheap", tuple(each for each in entries if not isinstance(each[1], Asked)))
        asked = tuple((words, entry) for words, entry in entries if isinstance(entry, Asked))
        object.__setattr__(self, "asked", asked)


# --- Policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Denies what none of its rules grants."""

    ref: Ref
    rules: tuple[Rule, ...] = ()
    base: BaseMode = BaseMode.MATCHED_SOURCE
    name: str = field(init=False, repr=False, compare=False)
    """For logs."""
    by_id: Mapping[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)
    """The rules for workloads, by id."""
    others: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The rules that are not for workloads alone."""
    issuers: frozenset[str] = field(init=False, repr=False, compare=False)
    """The addresses of the issuers whose tokens can prove ids of workloads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", str(self.ref))
        by_id: dict[str, tuple[int, ...]] = {}
        for index, rule in enumerate(self.rules):
            for each in rule.source.ids if isinstance(rule.source, Spiffe) else ():
                by_id[each] = (*by_id.get(each, ()), index)
        object.__setattr__(self, "by_id", MappingProxyType(by_id))
        others = tuple(index for index, rule in enumerate(self.rules) if not isinstance(rule.source, Spiffe))
        object.__setattr__(self, "others", others)
        workloads = (rule.source.issuers for rule in self.rules if isinstance(rule.source, Spiffe))
        object.__setattr__(self, "issuers", frozenset().union(*workloads))


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Denies what an external service denies, of those requests that one of its rules selects; none selects all."""

    ref: Ref
    rules: tuple[Rule, ...] = ()
    destination: Destination


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A policy that cannot be enforced as it was meant: it denies everything."""

    ref: Ref
    reason: str
    message: str


AnyPolicy: TypeAlias = Policy | Screen | Unusable


def entry_words(entry: Entry, index: int) -> str:
    """Name an entry of a rule for people and logs: its place and its type."""
    match entry:
        case Tools() | AllTools():
            kind = "InlineTools"
        case Inline():
            kind = "Inline"
        case Expression():
            kind = "CEL"
        case Asked():
            kind = "ExternalAuth"
        case Everything():
            kind = "Everything"
    return f"{index}:{kind}"


def reads_mcp(entry: Entry) -> bool:
    """Tell whether an entry depends on what an MCP request says."""
    match entry:
        case Tools() | AllTools():
            return True
        case Inline(mcp=mcp):
            return mcp is not None
        case Expression(program=program):
            return any(name.startswith("request.mcp.") for name in program.variables)
        case Asked() | Everything():
            return False


def arguments_of(entry: Entry) -> Members:
    """Return what an entry reads of the arguments of a call."""
    match entry:
        case Expression(program=program) if _ARGUMENTS in program.variables:
            return find_members(program.tree, tuple(_ARGUMENTS.split(".")))
        case _:
            return NOTHING


_ARGUMENTS: Final = "request.mcp.params"
