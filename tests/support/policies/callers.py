"""What a caller proves: a workload, a token, or nothing."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.policies.names import AGENT, ISSUER

from authplane.policy.check.basic import Absent
from authplane.policy.identity.evidence import Token
from authplane.policy.identity.tokens.frozen_json import freeze
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.identity.workload_identity.peer_outcome import Why
from authplane.policy.identity.workload_identity.service_account import ServiceAccount


@dataclass
class Proof:
    """What a request proves; counts how often it is asked for the token."""

    ids: tuple[str, ...] = ()
    shown: Token = field(default_factory=Absent)
    sa: ServiceAccount | None = None
    looked: int = 0

    def spiffe_ids(self) -> tuple[str, ...]:
        return self.ids

    def account(self) -> ServiceAccount | None:
        return self.sa

    def fault(self) -> Why | None:
        return None

    def token(self) -> Token:
        self.looked += 1
        return self.shown


def workload(*ids: str) -> Proof:
    return Proof(ids=ids or (AGENT,))


def token(issuer: str = ISSUER, **claims: Any) -> Verified:
    whole = {"iss": issuer, "sub": "alice", "aud": "shop", "exp": 2_000_000_000, **claims}
    kept = {name: value for name, value in whole.items() if value is not None}
    return Verified(issuer=issuer, subject="alice", claims=freeze(kept), expires_at=2e9)


def bearer(issuer: str = ISSUER, **claims: Any) -> Proof:
    return Proof(shown=token(issuer, **claims))
