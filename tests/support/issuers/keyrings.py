"""Keyrings of a few issuers whose keys never change by themselves."""

from dataclasses import dataclass, field

from tests.support.issuers.minting import ISSUER, Signer, key_set, signer

from authplane.policy.identity.tokens.compact_tokens import TOKEN_LIMITS, TokenLimits
from authplane.policy.identity.tokens.keys import KeySet, parse_key_set
from authplane.policy.identity.tokens.token_outcome import Outcome
from authplane.policy.identity.tokens.verify import Demands, Keyring, NotReady, Trust, examine


@dataclass
class Ring:
    """A keyring that remembers what was wanted, and who asked for which issuer."""

    issuers: dict[str, Trust | NotReady]
    asked: list[str] = field(default_factory=list)
    wishes: list[tuple[str, str]] = field(default_factory=list)

    def keys_of(self, name: str) -> Trust | NotReady | None:
        self.asked.append(name)
        return self.issuers.get(name)

    def wanted(self, issuer: str, kid: str) -> None:
        self.wishes.append((issuer, kid))


def verify(token: str, keyring: Keyring, now: float, limits: TokenLimits = TOKEN_LIMITS) -> Outcome:
    """Return what a token proves at ``now``, or why it proves nothing."""
    return examine(token, keyring, now, limits)[0]


def keys(*described: object) -> KeySet:
    parsed = parse_key_set(key_set(*described))
    assert isinstance(parsed, KeySet)
    return parsed


def trust(*signers: Signer, issuer: str = ISSUER, demands: Demands | None = None) -> Trust:
    return Trust(
        issuer=issuer, demands=demands or Demands(), keys=keys(*(each.jwk() for each in signers or (signer(),)))
    )


def ring(*signers: Signer, demands: Demands | None = None) -> Ring:
    return Ring({ISSUER: trust(*signers, demands=demands)})
