"""The filter that verifies tokens: whose they may be, and with which keys."""

from collections.abc import Mapping
from typing import Final

from envoy.config.core.v3 import base_pb2, extension_pb2
from envoy.extensions.filters.http.jwt_authn.v3 import config_pb2 as pb
from google.protobuf.empty_pb2 import Empty

from authplane.graph.programming import TOKENS
from authplane.policy.placement.sources import failure_key, header_key
from authplane.render.placed import Provider
from authplane.render.wrap import pack

_REMEMBERED: Final = 1000
"""How many tokens of an issuer each thread of Envoy remembers, so that it need not verify them again."""
_LONGEST: Final = 16 * 1024


def render_tokens(
    wanted: Mapping[str, tuple[Provider, ...]], keys: Mapping[str, str]
) -> extension_pb2.TypedExtensionConfig:
    """Render the filter for all targets, each of which wants tokens of some issuers.

    A token that proves nothing is left to the rules, which want one that does.
    """
    config = pb.JwtAuthentication()
    for provider in sorted({each for found in wanted.values() for each in found}):
        config.providers[provider.url].CopyFrom(_provider(provider, keys[provider.url]))
    for name, found in wanted.items():
        config.requirement_map[name].CopyFrom(_any_of(found))
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
        failed_status_in_metadata=failure_key(provider.url),
        jwt_cache_config=pb.JwtCacheConfig(jwt_cache_size=_REMEMBERED, jwt_max_token_size=_LONGEST),
    )
