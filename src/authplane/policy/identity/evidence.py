"""The evidence of who sends a request."""

from collections.abc import Collection
from typing import Final, NamedTuple, Protocol, TypeAlias

from authplane.policy.check.basic import Absent, Unfit
from authplane.policy.check.client_address import client_address
from authplane.policy.check.request import Request
from authplane.policy.check.throttle import source_of
from authplane.policy.identity.tokens.algorithms import DEFAULT_ALGORITHMS
from authplane.policy.identity.tokens.bearer import Bearer, parse_bearer
from authplane.policy.identity.tokens.compact_tokens import unverified_issuer
from authplane.policy.identity.tokens.inspector import TokenInspector
from authplane.policy.identity.tokens.token_outcome import Reason, Refused, Verified
from authplane.policy.identity.trusted import Trusted
from authplane.policy.identity.workload_identity.certificate_identity import PeerCertificates
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity, Why
from authplane.policy.identity.workload_identity.reviewing import ReviewOutcome, ReviewToken
from authplane.policy.identity.workload_identity.service_account import ServiceAccount, spiffe_id_of
from authplane.policy.identity.workload_identity.spiffe import SpiffeId
from authplane.policy.identity.workload_identity.token_review import Cluster, Judgement, ReviewUnavailable, TokenReviews
from authplane.policy.identity.workload_identity.workload_authorities import ClusterAuthority, WorkloadTokens
from authplane.policy.identity.workload_identity.workload_tokens import Projected

Token: TypeAlias = Verified | Refused | Absent | Unfit
"""What the request's token proves, or why it proves nothing."""

_NAMES_NOBODY: Final = frozenset({Why.NO_CERTIFICATE, Why.NOT_ONE_URI, Why.NOT_SPIFFE})
"""Why a certificate, or its absence, says nothing about workloads: then a token alone can."""


class Evidence(Protocol):
    """What one request proves. Each proof is computed once, when a rule needs it."""

    def spiffe_ids(self) -> tuple[str, ...]:
        """Return the SPIFFE ids that the peer has proved."""

    def account(self) -> ServiceAccount | None:
        """Return the ServiceAccount that a token of the cluster is for."""

    def fault(self) -> Why | None:
        """Return why a token does not identify a workload; None if there is no such token, or if it does."""

    def token(self) -> Token:
        """Return what the token in Authorization proves."""


class Identifier:
    """Tells who peers are; it remembers certificates, tokens and reviews."""

    def __init__(
        self, inspector: TokenInspector, certificates: PeerCertificates | None = None, *, account: str = ""
    ) -> None:
        self._inspector = inspector
        self._account = account
        self._beside: Identifier | None = None
        self._certificates = PeerCertificates() if certificates is None else certificates
        self._cluster = Cluster(issuers=frozenset())
        self._reviews = TokenReviews(self._cluster)

    def evidence(self, request: Request, trusted: Trusted, now: float) -> "RequestEvidence":
        """Return what a request proves at ``now``, in seconds since 1970."""
        return RequestEvidence(self, request, trusted, now)

    def for_shadows(self) -> "Identifier":
        """Return an identifier for policies in shadow: invalid tokens there do not count against their sender here."""
        if self._beside is None:
            self._beside = Identifier(self._inspector, self._certificates, account="shadow ")
        return self._beside

    def peer(self, request: Request, trust_domains: Collection[str], now: float) -> SpiffeId | NoIdentity:
        """Return the workload that the peer's certificate proves."""
        source = request.source
        return self._certificates.identify(source.principal, source.certificate, trust_domains, now)

    def token(self, request: Request, now: float, *, vouched: bool = False) -> Token:
        """Return what the one bearer token proves; if the cluster accepts it, it does not count against its sender."""
        shown = parse_bearer(request)
        if not isinstance(shown, Bearer):
            return shown
        return self._inspector.inspect(shown.token, now, lambda: "" if vouched else self._blamed(request))

    def workload_token(self, request: Request, workloads: WorkloadTokens, now: float) -> Token | None:
        """Return what a token that may identify a workload proves; None for any other token."""
        shown = parse_bearer(request)
        if not isinstance(shown, Bearer):
            return None
        return self._inspector.inspect_of(workloads.keyed_names, shown.token, now, lambda: self._blamed(request))

    def reviews(self, workloads: WorkloadTokens) -> TokenReviews:
        """Return the reviews of the cluster's tokens; they begin anew when other issuers are the cluster's."""
        cluster = Cluster(issuers=frozenset(name for each in workloads.reviewed for name in each.issuer.names()))
        if cluster != self._cluster:
            self._cluster, self._reviews = cluster, TokenReviews(cluster)
        return self._reviews

    def _blamed(self, request: Request) -> str:
        source = source_of(client_address(request))
        return f"{self._account}{source}" if source else ""


class _Proved(NamedTuple):
    """What certificate and token prove together about the workload that sends a request."""

    ids: tuple[str, ...] = ()
    account: ServiceAccount | None = None
    fault: Why | None = None


def evidence_for_shadows(evidence: Evidence) -> Evidence:
    """Return what a request proves to policies in shadow; other evidence is the same for them."""
    return evidence.for_shadows() if isinstance(evidence, RequestEvidence) else evidence


class RequestEvidence:
    """What one request proves, computed step by step."""

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
        """Return why the token identifies no workload."""
        return self._workload().fault

    def token(self) -> Token:
        """Return what the token proves by the keys of its issuer."""
        if self._token is None:
            vouched = isinstance(self._judgement, Projected)
            if self._trusted.strangers and self._is_stranger():
                self._token = self._strange()
            else:
                self._token = self._identifier.token(self._request, self._now, vouched=vouched)
        return self._token

    def for_shadows(self) -> "RequestEvidence":
        """Return what the same request proves to policies in shadow.

        They trust issuers and trust domains that enforced policies do not trust, and send no requests: a token that
        needs a TokenReview is not reviewed for them.
        """
        trusted = self._trusted
        wider = trusted._replace(trust_domains=trusted.shadow_domains, strangers=frozenset())
        other = RequestEvidence(self._identifier.for_shadows(), self._request, wider, self._now)
        unreviewed = self._judgement is None and trusted.workloads.reviewed and self._reviewer() is not None
        # Without a TokenReview of its own; the result of an enforced policy's review is known.
        other.judged(ReviewUnavailable("shadow policies make no calls") if unreviewed else self._judgement)
        return other

    def judged(self, judgement: Judgement | None) -> None:
        """Set the known outcome of a token review."""
        self._judgement = judgement

    def review(self) -> ReviewToken | None:
        """Return the token review that is required first; `reviewed` takes its outcome."""
        shown, authority = parse_bearer(self._request), self._reviewer()
        if not isinstance(shown, Bearer) or authority is None:
            return None
        self._reviews = self._identifier.reviews(self._trusted.workloads)
        source = source_of(client_address(self._request))
        found = self._reviews.ask(shown.token, authority.audiences, self._now, source, authority.review_lifetime)
        if isinstance(found, ReviewToken):
            return found
        self._judgement = found
        return None

    def reviewed(self, effect: ReviewToken, outcome: ReviewOutcome) -> None:
        """Take the outcome of a token review."""
        if self._reviews is not None:
            self._judgement = self._reviews.answered(effect, outcome, self._now)

    def _reviewer(self) -> ClusterAuthority | None:
        """Return the cluster that must review the token; None if there is none."""
        authority = self._trusted.workloads.by_name.get(self._claimed_issuer())
        return authority if isinstance(authority, ClusterAuthority) and authority.reviewed else None

    def _is_stranger(self) -> bool:
        return self._claimed_issuer() in self._trusted.strangers

    def _strange(self) -> Refused:
        """Return the outcome of a token whose issuer only policies in shadow name."""
        return Refused(reason=Reason.ISSUER, named=self._claimed_issuer())

    def _claimed_issuer(self) -> str:
        shown = parse_bearer(self._request)
        return unverified_issuer(shown.token, DEFAULT_ALGORITHMS) if isinstance(shown, Bearer) else ""

    def _workload(self) -> _Proved:
        if self._proved is None:
            trusted = self._trusted
            peer = self._identifier.peer(self._request, trusted.trust_domains, self._now)
            named = self._named() if trusted.workloads.authorities else None
            self._proved = _join(peer, named, trusted.own_domain)
        return self._proved

    def _named(self) -> SpiffeId | ServiceAccount | NoIdentity | None:
        """Return the workload that the token identifies; None if it can identify none."""
        match self._judgement:
            case Projected(account=account):
                return account
            case NoIdentity():
                return self._judgement
            case ReviewUnavailable():
                return NoIdentity(Why.NOT_REVIEWED)
            case None:
                trusted = self._trusted
                if self._token is None and trusted.strangers and self._is_stranger():
                    self._token = self._strange()
                elif self._token is None:
                    self._token = self._identifier.workload_token(self._request, trusted.workloads, self._now)
                return trusted.workloads.workload_of(self._token) if isinstance(self._token, Verified) else None


def _join(
    peer: SpiffeId | NoIdentity, named: SpiffeId | ServiceAccount | NoIdentity | None, own_domain: str
) -> _Proved:
    """Combine the certificate and the token; if they name different workloads, neither counts."""
    certified = () if isinstance(peer, NoIdentity) else (str(peer),)
    if named is None:
        return _Proved(certified)
    if isinstance(named, NoIdentity):
        # A token without an identity does not invalidate the certificate.
        return _Proved(certified, fault=named.why)
    if isinstance(peer, NoIdentity) and peer.why not in _NAMES_NOBODY:
        return _Proved(fault=peer.why)
    same = spiffe_id_of(named, own_domain) if isinstance(named, ServiceAccount) else named
    if isinstance(peer, SpiffeId) and peer != same:
        return _Proved(fault=Why.DIFFER)
    return _Proved(certified, named) if isinstance(named, ServiceAccount) else _Proved((str(named),))
