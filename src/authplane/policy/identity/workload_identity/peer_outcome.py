"""The outcomes of identifying a peer."""

from enum import StrEnum

from authplane.core.values import dataclass


class Why(StrEnum):
    """Why a peer has no identity, for the decision log."""

    NO_CERTIFICATE = "no_peer_certificate"
    """Among others when there is only a principal: that need not come from a URI name, or from a certificate at all."""
    CERTIFICATE_TOO_LARGE = "certificate_too_large"
    CERTIFICATE_MALFORMED = "certificate_malformed"
    NOT_ONE_URI = "certificate_without_exactly_one_uri"
    NOT_SPIFFE = "not_a_spiffe_id"
    NO_WORKLOAD = "spiffe_id_without_path"
    """It names a trust domain, and no workload in it."""
    AUTHORITY = "certificate_of_an_authority"
    SELF_SIGNED = "certificate_self_signed"
    USAGE = "certificate_not_for_clients"
    NOT_YET = "certificate_not_yet_valid"
    EXPIRED = "certificate_expired"
    TRUST_DOMAIN = "trust_domain_not_allowed"
    PRINCIPAL = "principal_differs"
    """The proxy names another identity than the certificate does."""
    ISSUER = "issuer_not_of_this_kind"
    AUDIENCE = "audience_missing"
    SUBJECT = "subject_malformed"
    CLAIMS = "claims_malformed"
    LEGACY = "legacy_token"
    """A token of a ServiceAccount that never expires."""
    TOKEN = "token_not_acceptable"  # noqa: S105 (a reason, no password)
    """The token cannot be one for us; no review was requested."""
    REVIEW = "token_review_denied"
    REVIEW_AUDIENCE = "token_review_without_audience"
    NOT_REVIEWED = "token_not_reviewed"
    """The cluster could not review the token: nothing is known about it."""
    DIFFER = "workloads_differ"
    """The certificate names another workload than the token does, so neither counts."""


@dataclass(frozen=True, slots=True)
class NoIdentity:
    """The peer proves nothing about itself."""

    why: Why
