"""What proves who sends a request."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from authplane.policy.basic import Absent, Unfit
from authplane.policy.peers.certificates import PeerCertificates
from authplane.policy.peers.outcome import NoIdentity
from authplane.policy.peers.service_account import ServiceAccount
from authplane.policy.peers.spiffe import SpiffeId
from authplane.policy.peers.workload_tokens import Projected, projected_account, svid_of_token
from authplane.policy.request import Request
from authplane.policy.throttle import source_of
from authplane.policy.tokens.bearer import Bearer, parse_bearer
from authplane.policy.tokens.inspector import TokenInspector
from authplane.policy.tokens.outcome import Refused, Verified

Token: TypeAlias = Verified | Refused | Absent | Unfit
"""What the request's token proves, or why there is nothing that it proves."""


class Evidence(Protocol):
    """What one request proves. Each is asked for when a rule needs it, and once."""

    def spiffe_ids(self) -> tuple[str, ...]:
        """Return the SPIFFE ids that the peer has proved."""

    def account(self) -> ServiceAccount | None:
        """Return the ServiceAccount that a token of the cluster is for."""

    def token(self) -> Token:
        """Return what the token in Authorization proves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTokens:
    """Whose tokens stand for workloads. Nobody's do unless it is said."""

    authorities: Mapping[str, Collection[str]] = field(default_factory=lambda: MappingProxyType({}))
    """For which trust domains an issuer of JWT-SVIDs may speak."""
    cluster_issuers: frozenset[str] = frozenset()
    audiences: frozenset[str] = frozenset()
    """What such tokens must be meant for."""


NO_WORKLOAD_TOKENS: Final = WorkloadTokens()


class Identifier:
    """Tells who peers are; it remembers certificates and tokens."""

    def __init__(
        self,
        inspector: TokenInspector,
        certificates: PeerCertificates | None = None,
        workloads: WorkloadTokens = NO_WORKLOAD_TOKENS,
    ) -> None:
        self._inspector = inspector
        self._certificates = PeerCertificates() if certificates is None else certificates
        self._workloads = workloads

    def evidence(self, request: Request, trust_domains: Collection[str], now: float) -> "RequestEvidence":
        """Return what a request proves at ``now``, in seconds since 1970."""
        return RequestEvidence(self, request, trust_domains, now)

    def peer(self, request: Request, trust_domains: Collection[str], now: float) -> SpiffeId | NoIdentity:
        """Return the workload that the peer's certificate proves."""
        source = request.source
        return self._certificates.identify(source.principal, source.certificate, trust_domains, now)

    def token(self, request: Request, now: float) -> Token:
        """Return what the one bearer token proves."""
        shown = parse_bearer(request)
        if not isinstance(shown, Bearer):
            return shown
        return self._inspector.inspect(shown.token, now, lambda: source_of(request.source.address))

    def workload(self, verified: Verified) -> str:
        """Return the SPIFFE id of a JWT-SVID; empty if the token is none."""
        if verified.issuer not in self._workloads.authorities:
            return ""
        found = svid_of_token(verified, authorities=self._workloads.authorities, audiences=self._workloads.audiences)
        return "" if isinstance(found, NoIdentity) else str(found)

    def account(self, verified: Verified) -> ServiceAccount | None:
        """Return the ServiceAccount of a projected token."""
        found = projected_account(
            verified, issuers=self._workloads.cluster_issuers, audiences=self._workloads.audiences
        )
        return found.account if isinstance(found, Projected) else None

    @property
    def knows_workload_tokens(self) -> bool:
        """Whether any token could stand for a workload: if not, nobody's token is looked at for that."""
        return bool(self._workloads.authorities or self._workloads.cluster_issuers)


class RequestEvidence:
    """What one request proves, found out step by step."""

    __slots__ = ("_identifier", "_ids", "_now", "_request", "_token", "_trust_domains")

    def __init__(self, identifier: Identifier, request: Request, trust_domains: Collection[str], now: float) -> None:
        self._identifier = identifier
        self._request = request
        self._trust_domains = trust_domains
        self._now = now
        self._ids: tuple[str, ...] | None = None
        self._token: Token | None = None

    def spiffe_ids(self) -> tuple[str, ...]:
        """Return the SPIFFE ids of the certificate and of a JWT-SVID."""
        if self._ids is None:
            peer = self._identifier.peer(self._request, self._trust_domains, self._now)
            ids = () if isinstance(peer, NoIdentity) else (str(peer),)
            if self._identifier.knows_workload_tokens:
                token = self.token()
                named = self._identifier.workload(token) if isinstance(token, Verified) else ""
                ids = (*ids, named) if named else ids
            self._ids = ids
        return self._ids

    def account(self) -> ServiceAccount | None:
        """Return the ServiceAccount that a projected token is for."""
        if not self._identifier.knows_workload_tokens:
            return None
        token = self.token()
        return self._identifier.account(token) if isinstance(token, Verified) else None

    def token(self) -> Token:
        """Return what the token proves."""
        if self._token is None:
            self._token = self._identifier.token(self._request, self._now)
        return self._token
