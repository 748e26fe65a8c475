"""The filter that verifies tokens: whose they may be, and with which keys."""

from collections.abc import Iterable, Mapping
from typing import Final

from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as pb
from google.protobuf.empty_pb2 import Empty

from authplane.controlplane.graph.model.programming import TOKENS
from authplane.controlplane.render.envoy_pieces import pack
from authplane.controlplane.render.native.native_enforcement import Provider
from authplane.policy.placement.source_placement import failure_key, header_key

_REMEMBERED: Final = 1000
"""How many tokens of an issuer each thread of Envoy remembers, so that it need not verify them again."""
_LONGEST: Final = 16 * 1024
_UNFACTORED: Final = (
    "x5cM7tzDsHVEkCAaeqYTzXOREIHHkPXxqHJvRjVQu1t_8NuOHqEYnscvk9FlABG9chrurMKs3jKgQQfwZIwoE6MfWwt3Zf-LRLS2_8kzhLZG6wnHz1"
    "6FktQOozyAA581tPFKBLUfe_14G-TRZzFkuo65kcLE1zC7vjX1kr3vUkr36Nrv0mxm_ALEea-J1k03P0QnCUOd5mzrlV8-o31RWfYTWAn4UzS1yxgT"
    "rdyAzQVgnxCsapWtZYcskJUlva0yvHKVkmQpIPJMYdxbPDt5I-VrFqTZ03PYch8ko_wPGzEx9VYVFyhmvMww-VBUyCTnM6XraBf3vBY5nUjGNhzH5Q"
)
"""RSA-2048, the number of the factoring challenge of that name: its private key is unknown."""
_NO_KEYS: Final = f'{{"keys":[{{"alg":"RS0","e":"AQAB","kid":"none","kty":"RSA","n":"{_UNFACTORED}"}}]}}'
"""Stands for the keys of an issuer as long as there are none: Envoy refuses an empty set.

No token has this algorithm. So Envoy says of each that it does not have its key, and rules ask the policy server then.
"""


def claims_only(name: str) -> str:
    """Name the requirement, or the issuer, with which Envoy keeps a token's claims and not its header.

    Both are always there: routes choose between them, and change later than this filter.
    """
    return f"{name} (claims only)"


def render_tokens(
    wanted: Mapping[str, tuple[Provider, ...]], keys: Mapping[str, str]
) -> extension_pb2.TypedExtensionConfig:
    """Render the filter for all targets, each of which wants tokens of some issuers.

    A token that proves nothing is left to the rules, which want one that does. Issuers without keys are there too: a
    proxy gets this before its routes, and those that it has may still rely on keys that are gone.
    """
    config = pb.JwtAuthentication()
    for provider in sorted({each for found in wanted.values() for each in found}):
        made = _provider(provider, keys.get(provider.url, _NO_KEYS))
        config.providers[claims_only(provider.url)].CopyFrom(made)
        # A copy of a header takes Envoy 5 µs a request.
        made.header_in_metadata = header_key(provider.url)
        config.providers[provider.url].CopyFrom(made)
    for name, found in wanted.items():
        config.requirement_map[name].CopyFrom(_any_of(each.url for each in found))
        config.requirement_map[claims_only(name)].CopyFrom(_any_of(claims_only(each.url) for each in found))
    return extension_pb2.TypedExtensionConfig(name=TOKENS, typed_config=pack(config))


def _any_of(providers: Iterable[str]) -> pb.JwtRequirement:
    """Verify a token of any of these issuers; a request without one goes on."""
    each = [pb.JwtRequirement(provider_name=name) for name in providers]
    others = pb.JwtRequirement(allow_missing_or_failed=Empty())
    return pb.JwtRequirement(requires_any=pb.JwtRequirementOrList(requirements=[*each, others]))


def _provider(provider: Provider, keys: str) -> pb.JwtProvider:
    return pb.JwtProvider(
        issuer=provider.url,
        local_jwks=base_pb2.DataSource(inline_string=keys),
        # By default it would also look into the query.
        from_headers=[pb.JwtHeader(name="Authorization", value_prefix="Bearer ")],
        # The rules look at the header; the route removes it.
        forward=True,
        require_expiration=True,
        # Envoy has whole seconds, and takes a token for all of the last one; to us it has expired when that begins.
        clock_skew_seconds=provider.skew - 1,
        payload_in_metadata=provider.url,
        failed_status_in_metadata=failure_key(provider.url),
        jwt_cache_config=pb.JwtCacheConfig(jwt_cache_size=_REMEMBERED, jwt_max_token_size=_LONGEST),
    )
