"""What proves who sends a request."""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol, TypeAlias

from authplane.policy.basic import Absent, Unfit
from authplane.policy.peers.authorities import NO_WORKLOAD_TOKENS, ClusterAuthority, WorkloadTokens
from authplane.policy.peers.certificates import PeerCertificates
from authplane.policy.peers.outcome import NoIdentity, Why
from authplane.policy.peers.reviewing import ReviewOutcome, ReviewToken
from authplane.policy.peers.service_account import ServiceAccount, spiffe_id_of
from authplane.policy.peers.spiffe import SpiffeId
from authplane.policy.peers.token_review import Cluster, Judgement, ReviewUnavailable, TokenReviews
from authplane.policy.peers.workload_tokens import Projected
from authplane.policy.request import Request
from authplane.policy.throttle import source_of
from authplane.policy.tokens.algorithms import DEFAULT_ALGORITHMS
from authplane.policy.tokens.bearer import Bearer, parse_bearer
from authplane.policy.tokens.compact import unverified_issuer
from authplane.policy.tokens.inspector import TokenInspector
from authplane.policy.tokens.outcome import Refused, Verified

Token: TypeAlias = Verified | Refused | Absent | Unfit
"""What the request's token proves, or why there is nothing that it proves."""

_NAMES_NOBODY: Final = frozenset({Why.NO_CERTIFICATE, Why.NOT_ONE_URI, Why.NOT_SPIFFE})
"""Why a certificate, or its absence, says nothing about workloads: then a token alone can."""


class Evidence(Protocol):
    """What one request proves. Each is asked for when a rule needs it, and once."""

    def spiffe_ids(self) -> tuple[str, ...]:
        """Return the SPIFFE ids that the peer has proved."""

    def account(self) -> ServiceAccount | None:
        """Return the ServiceAccount that a token of the cluster is for."""

    def fault(self) -> Why | None:
        """Return why a token that should stand for a workload does not; None if there is none, or if it does."""

    def token(self) -> Token:
        """Return what the token in Authorization proves."""


class Trusted(NamedTuple):
    """Whom certificates and tokens of workloads may come from."""

    trust_domains: Collection[str] = frozenset()
    """Those whose certificates count."""
    own_domain: str = "cluster.local"
    """The one in which ServiceAccounts have their ids."""
    workloads: WorkloadTokens = NO_WORKLOAD_TOKENS


class Identifier:
    """Tells who peers are; it remembers certificates, tokens and reviews."""

    def __init__(self, inspector: TokenInspector, certificates: PeerCertificates | None = None) -> None:
        self._inspector = inspector
        self._certificates = PeerCertificates() if certificates is None else certificates
        self._cluster = Cluster(issuers=frozenset())
        self._reviews = TokenReviews(self._cluster)

    def evidence(self, request: Request, trusted: Trusted, now: float) -> "RequestEvidence":
        """Return what a request proves at ``now``, in seconds since 1970."""
        return RequestEvidence(self, request, trusted, now)

    def peer(self, request: Request, trust_domains: Collection[str], now: float) -> SpiffeId | NoIdentity:
        """Return the workload that the peer's certificate proves."""
        source = request.source
        return self._certificates.identify(source.principal, source.certificate, trust_domains, now)

    def token(self, request: Request, now: float, *, vouched: bool = False) -> Token:
        """Return what the one bearer token proves; if the cluster vouches for it, its bearer is not to blame."""
        shown = parse_bearer(request)
        if not isinstance(shown, Bearer):
            return shown
        return self._inspector.inspect(shown.token, now, lambda: "" if vouched else source_of(request.source.address))

    def workload_token(self, request: Request, workloads: WorkloadTokens, now: float) -> Token | None:
        """Return the same of a token that may stand for a workload; None of any other."""
        shown = parse_bearer(request)
        if not isinstance(shown, Bearer):
            return None
        return self._inspector.inspect_of(
            workloads.keyed_names, shown.token, now, lambda: source_of(request.source.address)
        )

    def reviews(self, workloads: WorkloadTokens) -> TokenReviews:
        """Return the reviews of the cluster's tokens; they begin anew when other issuers are the cluster's."""
        cluster = Cluster(issuers=frozenset(name for each in workloads.reviewed for name in each.issuer.names()))
        if cluster != self._cluster:
            self._cluster, self._reviews = cluster, TokenReviews(cluster)
        return self._reviews


class _Proved(NamedTuple):
    """What certificate and token prove together about the workload that sends a request."""

    ids: tuple[str, ...] = ()
    account: ServiceAccount | None = None
    fault: Why | None = None


class RequestEvidence:
    """What one request proves, found out step by step."""

    __slots__ = ("_identifier", "_judgement", "_now", "_proved", "_request", "_reviews", "_token", "_trusted")

    def __init__(self, identifier: Identifier, request: Request, trusted: Trusted, now: float) -> None:
        self._identifier = identifier
        self._request = request
        self._trusted = trusted
        self._now = now
        self._proved: _Proved | None = None
        self._reviews: TokenReviews | None = None
        self._judgement: Judgement | None = None
        self._token: Token | None = None

    def spiffe_ids(self) -> tuple[str, ...]:
        """Return the SPIFFE ids of the certificate or of a JWT-SVID; if there are both, they must be the same."""
        return self._workload().ids

    def account(self) -> ServiceAccount | None:
        """Return the ServiceAccount that a projected token is for."""
        return self._workload().account

    def fault(self) -> Why | None:
        """Return why the token stands for no workload."""
        return self._workload().fault

    def token(self) -> Token:
        """Return what the token proves by the keys of its issuer."""
        if self._token is None:
            vouched = isinstance(self._judgement, Projected)
            self._token = self._identifier.token(self._request, self._now, vouched=vouched)
        return self._token

    def review(self) -> ReviewToken | None:
        """Return what the cluster has to be asked before anything else; `reviewed` takes the outcome."""
        shown, workloads = parse_bearer(self._request), self._trusted.workloads
        if not isinstance(shown, Bearer):
            return None
        authority = workloads.by_name.get(unverified_issuer(shown.token, DEFAULT_ALGORITHMS))
        if not isinstance(authority, ClusterAuthority) or not authority.reviewed:
            return None
        self._reviews = self._identifier.reviews(workloads)
        found = self._reviews.ask(shown.token, authority.audiences, self._now, source_of(self._request.source.address))
        if isinstance(found, ReviewToken):
            return found
        self._judgement = found
        return None

    def reviewed(self, effect: ReviewToken, outcome: ReviewOutcome) -> None:
        """Take what the cluster says."""
        if self._reviews is not None:
            self._judgement = self._reviews.answered(effect, outcome, self._now)

    def _workload(self) -> _Proved:
        if self._proved is None:
            trusted = self._trusted
            peer = self._identifier.peer(self._request, trusted.trust_domains, self._now)
            named = self._named() if trusted.workloads.authorities else None
            self._proved = _join(peer, named, trusted.own_domain)
        return self._proved

    def _named(self) -> SpiffeId | ServiceAccount | NoIdentity | None:
        """Return the workload that the token stands for; None if it is none that could."""
        match self._judgement:
            case Projected(account=account):
                return account
            case NoIdentity():
                return self._judgement
            case ReviewUnavailable():
                return NoIdentity(Why.NOT_REVIEWED)
            case None:
                workloads = self._trusted.workloads
                if self._token is None:
                    self._token = self._identifier.workload_token(self._request, workloads, self._now)
                return workloads.workload_of(self._token) if isinstance(self._token, Verified) else None


def _join(
    peer: SpiffeId | NoIdentity, named: SpiffeId | ServiceAccount | NoIdentity | None, own_domain: str
) -> _Proved:
    """Take the certificate and the token together; if they name different workloads, neither is believed."""
    certified = () if isinstance(peer, NoIdentity) else (str(peer),)
    if named is None:
        return _Proved(certified)
    if isinstance(named, NoIdentity):
        # What is no proof of anybody does not spoil the other one.
        return _Proved(certified, fault=named.why)
    if isinstance(peer, NoIdentity) and peer.why not in _NAMES_NOBODY:
        return _Proved(fault=peer.why)
    same = spiffe_id_of(named, own_domain) if isinstance(named, ServiceAccount) else named
    if isinstance(peer, SpiffeId) and peer != same:
        return _Proved(fault=Why.DIFFER)
    return _Proved(certified, named) if isinstance(named, ServiceAccount) else _Proved((str(named),))
