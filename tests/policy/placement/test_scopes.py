"""How long a scope may be that Envoy looks for."""

from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.placement.placement_model import CallOut, Sender
from authplane.policy.placement.source_placement import SCOPE, place_source
from authplane.policy.rules.access_settings import Settings
from authplane.policy.rules.rule_model import Oidc

URL = "https://issuer.example"
LONGEST = 92
"""In plain letters: 100 instructions of a pattern, with what stands around them."""


def placed(scope: str) -> Sender | CallOut:
    return place_source(Oidc(issuer=IssuerUrl(url=URL, literal=URL), scopes=("read", scope)), Settings())


def test_a_scope_is_as_long_as_envoys_patterns_may_be() -> None:
    assert isinstance(placed("a" * LONGEST), Sender)
    assert placed("a" * (LONGEST + 1)) == CallOut(SCOPE)
