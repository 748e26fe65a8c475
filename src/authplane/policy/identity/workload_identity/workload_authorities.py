"""The issuers whose tokens identify workloads; none unless configured."""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final, TypeAlias

from authplane.core.values import dataclass
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity
from authplane.policy.identity.workload_identity.reviewing import LONGEST
from authplane.policy.identity.workload_identity.service_account import ServiceAccount
from authplane.policy.identity.workload_identity.spiffe import SpiffeId
from authplane.policy.identity.workload_identity.workload_tokens import projected_account, svid_of_token


@dataclass(frozen=True, slots=True, kw_only=True)
class SvidAuthority:
    """An issuer whose tokens are JWT-SVIDs of one trust domain."""

    issuer: IssuerUrl
    trust_domain: str
    audiences: frozenset[str]
    """What a token must be meant for, one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAuthority:
    """An issuer whose tokens are those that the cluster makes for the pods of ServiceAccounts."""

    issuer: IssuerUrl
    audiences: frozenset[str]
    """What a token must be meant for, one of them."""
    reviewed: bool = False
    """Whether the cluster reviews each token; otherwise its keys suffice."""
    review_lifetime: float = LONGEST
    """Seconds for which a positive review is kept."""


Authority: TypeAlias = SvidAuthority | ClusterAuthority


@dataclass(frozen=True, slots=True)
class WorkloadTokens:
    """All issuers whose tokens identify workloads."""

    authorities: tuple[Authority, ...] = ()
    by_name: Mapping[str, Authority] = field(init=False, repr=False, compare=False)
    """By what their tokens have as ``iss``."""
    reviewed: tuple[ClusterAuthority, ...] = field(init=False, repr=False, compare=False)
    """The issuers whose tokens the cluster reviews."""
    keyed: tuple[Authority, ...] = field(init=False, repr=False, compare=False)
    """The others, whose keys suffice."""
    keyed_names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_name = {name: each for each in self.authorities for name in each.issuer.names()}
        object.__setattr__(self, "by_name", MappingProxyType(by_name))
        reviewed = tuple(each for each in self.authorities if isinstance(each, ClusterAuthority) and each.reviewed)
        object.__setattr__(self, "reviewed", reviewed)
        keyed = tuple(each for each in self.authorities if each not in reviewed)
        object.__setattr__(self, "keyed", keyed)
        object.__setattr__(self, "keyed_names", frozenset(name for each in keyed for name in each.issuer.names()))

    def issuers_for(self, spiffe_id: SpiffeId) -> frozenset[str]:
        """Return the addresses of the issuers whose tokens can prove an id."""
        return frozenset(
            each.issuer.url
            for each in self.authorities
            if isinstance(each, SvidAuthority) and each.trust_domain == spiffe_id.trust_domain
        )

    def cluster_issuers(self) -> frozenset[str]:
        """Return the addresses of the issuers whose tokens can prove ServiceAccounts."""
        return frozenset(each.issuer.url for each in self.authorities if isinstance(each, ClusterAuthority))

    def workload_of(self, verified: Verified) -> SpiffeId | ServiceAccount | NoIdentity | None:
        """Return the workload that a token identifies; None if its issuer identifies no workloads.

        Nor does one whose tokens the cluster has to review: its keys alone prove nothing.
        """
        match self.by_name.get(verified.issuer):
            case SvidAuthority(trust_domain=domain, audiences=audiences):
                return svid_of_token(verified, authorities={verified.issuer: (domain,)}, audiences=audiences)
            case ClusterAuthority(audiences=audiences, reviewed=False):
                found = projected_account(verified, issuers=(verified.issuer,), audiences=audiences)
                return found if isinstance(found, NoIdentity) else found.account
            case _:
                return None


NO_WORKLOAD_TOKENS: Final = WorkloadTokens()
