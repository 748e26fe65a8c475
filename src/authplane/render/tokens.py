"""The filter that verifies tokens: whose they may be, and with which keys."""

from collections.abc import Iterable, Mapping

from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as pb
from google.protobuf.empty_pb2 import Empty

from authplane.policy.placement.sources import header_key
from authplane.render.native import TOKENS
from authplane.render.placed import Placed, Provider, requirement_name
from authplane.render.wrap import pack

_REMEMBERED = 1000
"""How many tokens of an issuer each thread of Envoy remembers, so that it need not verify them again."""
_LONGEST = 16 * 1024


def render_tokens(placed: Iterable[Placed], keys: Mapping[str, str]) -> extension_pb2.TypedExtensionConfig:
    """Render the filter for all targets; a token that proves nothing is left to the rules, which want one that does."""
    sets = {each.providers for each in placed if each.providers}
    config = pb.JwtAuthentication()
    for provider in sorted({each for found in sets for each in found}):
        config.providers[provider.url].CopyFrom(_provider(provider, keys[provider.url]))
    for found in sorted(sets):
        config.requirement_map[requirement_name(found)].CopyFrom(_any_of(found))
    return extension_pb2.TypedExtensionConfig(name=TOKENS, typed_config=pack(config))


def _any_of(providers: tuple[Provider, ...]) -> pb.JwtRequirement:
    """Verify a token of any of these issuers; a request without one goes on."""
    each = [pb.JwtRequirement(provider_name=provider.url) for provider in providers]
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
        clock_skew_seconds=provider.skew,
        payload_in_metadata=provider.url,
        header_in_metadata=header_key(provider.url),
        jwt_cache_config=pb.JwtCacheConfig(jwt_cache_size=_REMEMBERED, jwt_max_token_size=_LONGEST),
    )
