"""What the tokens of workloads prove, once their signatures are verified: JWT-SVIDs and projected tokens."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from authplane.core.values import dataclass
from authplane.policy.identity.tokens.check_claims import audience_fits
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.identity.workload_identity.peer_outcome import NoIdentity, Why
from authplane.policy.identity.workload_identity.service_account import ServiceAccount, account_of_user
from authplane.policy.identity.workload_identity.spiffe import NotSpiffe, SpiffeId, parse_spiffe_id

_KUBERNETES: Final = "kubernetes.io"
_LEGACY: Final = "kubernetes.io/serviceaccount/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """A ServiceAccount, by a token that the cluster made for one of its workloads."""

    account: ServiceAccount
    pod: str = ""
    """The pod that the token is bound to; empty if it is bound to none."""


def svid_of_token(
    verified: Verified, *, authorities: Mapping[str, Collection[str]], audiences: Collection[str]
) -> SpiffeId | NoIdentity:
    """Return the workload that a JWT-SVID names.

    ``authorities`` says for which trust domains each issuer may speak: another issuer's token can have any subject, and
    means nothing. The token must be meant for one of ``audiences``; if there are none, no token is.
    """
    domains = authorities.get(verified.issuer)
    if domains is None:
        return NoIdentity(Why.ISSUER)
    if not _meant_for(verified.claims, audiences):
        return NoIdentity(Why.AUDIENCE)
    found = parse_spiffe_id(verified.subject)
    if isinstance(found, NotSpiffe):
        return NoIdentity(Why.NOT_SPIFFE)
    if not found.path:
        return NoIdentity(Why.NO_WORKLOAD)
    return found if found.trust_domain in domains else NoIdentity(Why.TRUST_DOMAIN)


def projected_account(
    verified: Verified, *, issuers: Collection[str], audiences: Collection[str]
) -> Projected | NoIdentity:
    """Return the ServiceAccount that a token of one of the cluster's ``issuers`` is for.

    Only a review by the cluster shows whether the account or the pod still exists. The token must have one of
    ``audiences``: a token for the API server alone proves nothing to us. A legacy token has no audience, and only a
    review may accept it.
    """
    if verified.issuer not in issuers:
        return NoIdentity(Why.ISSUER)
    account = account_of_user(verified.subject)
    if account is None:
        return NoIdentity(Why.SUBJECT)
    if any(name.startswith(_LEGACY) for name in verified.claims):
        return NoIdentity(Why.LEGACY)
    if not _meant_for(verified.claims, audiences):
        return NoIdentity(Why.AUDIENCE)
    return _bound(account, verified.claims.get(_KUBERNETES))


def _meant_for(claims: Mapping[str, Any], audiences: Collection[str]) -> bool:
    return bool(audiences) and audience_fits(claims, audiences)


def _bound(account: ServiceAccount, stated: object) -> Projected | NoIdentity:
    """Compare what the cluster says of a token with its subject."""
    owner = _member(stated, "serviceaccount")
    if _member(stated, "namespace") != account.namespace or _member(owner, "name") != account.name:
        return NoIdentity(Why.CLAIMS)
    pod = _member(_member(stated, "pod"), "name")
    return Projected(account=account, pod=pod if isinstance(pod, str) else "")


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None
