"""Where a rule is enforced, as values."""

from enum import StrEnum
from typing import Final, TypeAlias

from authplane.cel.envoy.request_checks import PRESENT, Header
from authplane.cel.envoy.translate import NOBODY, Condition, Who
from authplane.core.envoy_releases import CURRENT, Release
from authplane.core.names import Ref
from authplane.core.values import dataclass
from authplane.policy.rules.access_settings import Composition, Placement
from authplane.policy.rules.rule_model import Oidc, Source

NO_IDS: Final[frozenset[str]] = frozenset()

# --- What decides it


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The policies of a target, besides the settings chosen for it."""

    envoy: Release = CURRENT
    keys: frozenset[str] | None = None
    """The URLs of the issuers whose keys Envoy gets; None means all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings chosen for a target, and the release of its Envoy."""

    placement: Placement = Placement.AUTO
    envoy: Release = CURRENT


# --- Where one entry of a rule is enforced


@dataclass(frozen=True, slots=True)
class Native:
    """Envoy decides: the condition is true exactly if the entry grants the request, apart from its source."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class CallOut:
    """The policy server decides."""

    reason: str
    """Continues a sentence about the rule: "reads tool arguments"."""


Place: TypeAlias = Native | CallOut


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Token:
    """What a good token of an issuer is, the same for all rules that are for it."""

    issuer: str
    condition: Condition
    read: Condition
    """The same where the reader of MCP messages has read the token too, without an expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A source that Envoy recognises by itself."""

    condition: Condition
    """The condition of the rule's senders, besides what ``token`` and ``ids`` require."""
    token: Token | None = None
    """If set, the request needs a token for which this condition is true."""
    ids: frozenset[str] = NO_IDS
    """If there are any, the peer's verified certificate must have one of them as a URI (``mtls_authenticated``)."""
    who: Who = NOBODY
    """What expressions of the rule call ``identity``."""
    unsure: Condition | None = None
    """The condition of senders that Envoy cannot identify and the policy server may."""

    @property
    def shown(self) -> Condition:
        """The condition of the rule's senders, besides what ``ids`` require."""
        return self.condition if self.token is None else self.condition.and_then(self.token.condition)


# --- All policies of a target


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedEntry:
    """One entry of a rule, or the base protocol that comes with it."""

    rule: str
    entry: str
    """Its place and its type, as in logs."""
    source: Source
    sender: Sender | CallOut
    place: Place
    """A `CallOut` if the source is one."""

    def granted(self) -> Condition | None:
        """Return the condition of exactly the requests that Envoy grants by this entry; None if it grants none.

        Besides, the peer must have proved one of the sender's ids, if there are any. The condition may fail, so it must
        not be negated or joined with others: each has its own rule in Envoy.
        """
        if isinstance(self.sender, CallOut) or isinstance(self.place, CallOut):
            return None
        return self.place.condition.and_then(self.sender.shown)

    def reached(self) -> tuple[Condition, frozenset[str]]:
        """Return a condition that covers all senders that the policy server may grant something by this entry.

        Besides, they must have proved one of the ids, if there are any. The server accepts some proofs that Envoy does
        not: so every sender with a token is among them.
        """
        if isinstance(self.sender, CallOut):
            return Condition(), NO_IDS
        if isinstance(self.source, Oidc):
            return Condition(check=Header("authorization", PRESENT)), NO_IDS
        return self.sender.condition, self.sender.ids


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPolicy:
    """One policy: a request passes that a native entry grants; who is not granted so may be asked about."""

    ref: Ref
    entries: tuple[PlacedEntry, ...] = ()
    """Empty denies everything."""
    required: bool = False
    """It must grant a request even where one of several policies suffices."""

    def key(self, entry: PlacedEntry) -> str:
        """Return what Envoy calls an entry in its logs and metadata."""
        return f"{self.ref.namespace}/{self.ref.name}/{entry.rule}/{entry.entry}"

    @property
    def native(self) -> tuple[PlacedEntry, ...]:
        """The entries that Envoy decides."""
        return tuple(each for each in self.entries if isinstance(each.place, Native))

    @property
    def asked(self) -> tuple[PlacedEntry, ...]:
        """The entries that the policy server decides."""
        return tuple(each for each in self.entries if isinstance(each.place, CallOut))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedAttachment:
    """The policies of the Gateway, or those of the backend; a request must pass both."""

    policies: tuple[PlacedPolicy, ...] = ()
    composition: Composition = Composition.ALL


class Decider(StrEnum):
    """Who decides about the requests to a target."""

    NOBODY = "Nobody"
    """No policy protects it."""
    ENVOY = "Envoy"
    """Envoy alone; `Plan.front` and `Plan.worded` say when it calls out nevertheless."""
    BOTH = "Envoy and policy server"
    """Envoy calls out only for requests that it does not grant itself and that the server could grant."""
    SERVER = "Policy server"
    GRPC = "gRPC server"
    """A server of ``authplane.grpc`` alone, unless a call is unusual."""
    GRPC_AND_SERVER = "gRPC server and policy server"


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Plan:
    """How the policies of a target are enforced.

    Envoy calls out for a request that `front` does not match. Of the others, Envoy allows those that a native entry of
    every policy grants; calls out for those that each policy could grant, by a native entry or to the sender of an
    entry that is not native; and denies the rest. The policy server judges the whole request, by all policies.
    """

    attachments: tuple[PlacedAttachment, ...] = ()
    decider: Decider
    front: Condition
    """The same for all targets whose rules read MCP; its expression never fails."""
    arguments: tuple[str, ...] = ()
    """The tool arguments that rules read, sorted: the reader inside Envoy keeps them."""
    worded: bool = False
    """Some denial says more than Envoy knows: which scopes are missing, what the rule's author has to say, the id of an
    MCP message that Envoy does not read, or that the sender's rule grants nothing. Whatever Envoy does not grant is
    then the server's to deny."""
