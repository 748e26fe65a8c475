"""The issuers and trust domains that policies trust."""

from collections.abc import Collection
from typing import NamedTuple

from authplane.policy.identity.workload_identity.workload_authorities import NO_WORKLOAD_TOKENS, WorkloadTokens


class Trusted(NamedTuple):
    """Whom certificates and tokens of workloads may come from."""

    trust_domains: Collection[str] = frozenset()
    """The trust domains whose certificates count."""
    own_domain: str = "cluster.local"
    """The trust domain of ServiceAccounts."""
    workloads: WorkloadTokens = NO_WORKLOAD_TOKENS
    strangers: frozenset[str] = frozenset()
    """The ``iss`` of issuers that only policies in shadow name; enforced policies do not know them."""
    shadow_domains: Collection[str] = frozenset()
    """The trust domains whose certificates count for policies in shadow."""
