"""Limits of what is read, kept and waited for, each written out: whoever changes one should know of it here.

What happens at a limit is tested where the limit is enforced.
"""

from importlib import import_module
from typing import Final

import pytest

from authplane.cel.evaluate.slow_programs import PATIENCE, Patience
from authplane.dataplane.filters.extauthz.decision_cache import Caching
from authplane.policy.check.throttle import PER_SOURCE, PER_USER, Rate
from authplane.policy.identity.tokens import inspector
from authplane.policy.identity.tokens.compact_tokens import TOKEN_LIMITS, TokenLimits
from authplane.policy.identity.tokens.issuer import Schedule
from authplane.policy.identity.workload_identity import token_review
from authplane.policy.mcp.mcp_answers import DenialFormat
from authplane.policy.mcp.message_limits import DEFAULT_LIMITS, McpLimits
from authplane.policy.rules.access_settings import Composition, Options, Placement, Settings

LIMITS: Final[dict[str, dict[str, float]]] = {
    "authserver.backends.htpasswd.passwords": {"HIGHEST_COST": 14, "MOST_ROUNDS": 500_000},
    "authserver.backends.htpasswd.users": {"LONGEST_USER": 255, "MOST_USERS": 100_000},
    "authserver.backends.htpasswd.verified_credentials": {"LIFETIME": 300.0, "MOST": 10_000},
    "cel.calls.call_vocabulary": {"LARGEST_PATTERN": 100},
    "cel.calls.wire": {"LARGEST": 131_072},
    "cel.check.admissible_data": {"MOST_STRING": 32_768, "MOST_DATA": 262_144, "MOST_ELEMENTS": 1000, "MOST_DEPTH": 32},
    "cel.check.cost_estimate": {"MOST_WORK": 5_000_000, "MOST_STEPS": 10_000, "USUAL_ELEMENTS": 100},
    "cel.check.forbidden_parts": {"DEEPEST": 32},
    "cel.check.program": {"LARGEST_TEXT": 4096},
    "cel.check.regex_patterns": {"LONGEST": 256, "LARGEST": 2000},
    "cel.envoy.fitness": {"LARGEST_PATTERN": 100, "LARGEST_INTEGER": 9_007_199_254_740_992, "DEEPEST": 22},
    "controlplane.status.stored_entries": {"MOST_CONDITIONS": 8},
    "controlplane.status.enforced_condition": {"LONGEST_MESSAGE": 1024},
    "dataplane.filters.extauthz.authorize_call": {"MOST_BYTES": 524_288},
    "dataplane.filters.extauthz.service_config.service": {"LONGEST": 3000000000.0},
    "dataplane.filters.headers": {"LONGEST": 16_384},
    "dataplane.filters.registry": {"MOST_DEPTH": 8},
    "matching.fractions": {"MILLION": 1_000_000},
    "matching.tree_wire": {"DEEPEST": 16},
    "policy.check.basic": {"LONGEST_PASSWORD": 512, "LONGEST_REALM": 128},
    "policy.check.throttle": {"MOST": 10_000},
    "policy.compile.compile_policies": {"MOST_ANCESTORS": 16},
    "policy.external_authorization.check_hops": {"MOST_HOPS": 3},
    "policy.identity.tokens.check_claims": {
        "LONGEST_SKEW": 120.0,
        "DEFAULT_SKEW": 30.0,
        "LATEST_TIME": 253_402_300_799,
    },
    "policy.identity.tokens.compact_tokens": {"LONGEST_KID": 256},
    "policy.identity.tokens.discovery": {"LARGEST_DOCUMENT": 1_048_576},
    "policy.identity.tokens.key_lifetime": {"SHORTEST": 60.0, "LONGEST": 86400.0, "USUAL": 600.0},
    "policy.identity.tokens.issuer": {"MOST_KIDS": 1000},
    "policy.identity.tokens.issuer_url": {"LONGEST": 2048},
    "policy.identity.tokens.keys": {"LARGEST_KEY_SET": 1_048_576, "MOST_KEYS": 256},
    "policy.identity.tokens.token_cache": {"LIFETIME": 300.0, "MOST": 10_000},
    "policy.identity.workload_identity.breaker": {"FAILURES": 5, "PAUSE": 5.0, "LONGEST_PAUSE": 60.0},
    "policy.identity.workload_identity.certificate_identity": {"LONGEST": 32_768, "MOST": 10_000},
    "policy.identity.workload_identity.spiffe": {"LONGEST_ID": 2048, "LONGEST_TRUST_DOMAIN": 255},
    "policy.identity.workload_identity.reviewing": {"LONGEST": 60.0},
    "policy.identity.workload_identity.token_review": {"LIFETIME_OF_DENIALS": 10.0, "MOST": 10_000},
    "policy.mcp.mcp_answers": {
        "FORBIDDEN": -32_003,
        "UNAUTHENTICATED": -32_004,
        "TOO_MANY": -32_005,
        "UPSTREAM_FORBIDDEN": 403,
    },
    "policy.mcp.mcp_refusal": {
        "PARSE_ERROR": -32_700,
        "INVALID_REQUEST": -32_600,
        "INVALID_PARAMS": -32_602,
        "HEADER_MISMATCH": -32_020,
        "UNSUPPORTED_VERSION": -32_022,
    },
    "policy.mcp.message_limits": {"LARGEST_BODY": 1_048_576, "LONGEST_ID": 1024},
    "policy.mcp.methods": {"LONGEST_NAME": 256, "LONGEST_ADDRESS": 4096},
}


@pytest.mark.parametrize(("module", "limits"), LIMITS.items(), ids=LIMITS.keys())
def test_limits_stay_as_they_are(module: str, limits: dict[str, float]) -> None:
    found = import_module(f"authplane.{module}")
    assert {name: getattr(found, name) for name in limits} == limits


VALUES: Final[dict[str, tuple[object, object]]] = {
    "slow expressions": (PATIENCE, Patience(slow=0.05, most=5, within=60, rest=60)),
    "MCP requests": (DEFAULT_LIMITS, McpLimits(body=65_536, depth=64, members=10_000)),
    "tokens": (TOKEN_LIMITS, TokenLimits(token=16_384, header=6_144, signature=1_366, depth=32, members=10_000)),
    "remembered decisions": (Caching(), Caching(allow_ttl=10, deny_ttl=1, most=10_000, by_address=True)),
    "passwords of a user": (PER_USER, Rate(burst=20, per_second=1)),
    "passwords of a client": (PER_SOURCE, Rate(burst=60, per_second=5)),
    "reviews for a client": (token_review.PER_SOURCE, Rate(burst=20, per_second=1)),
    "all reviews": (token_review.ALL, Rate(burst=200, per_second=100)),
    "bad tokens of a client": (inspector.PER_SOURCE, Rate(burst=2_000, per_second=200)),
    "all bad tokens": (inspector.IN_ALL, Rate(burst=10_000, per_second=2_000)),
    "when issuers are asked": (Schedule(), Schedule(max_stale=86_400, between=30, first_retry=1)),
    "what whoever starts us decides": (
        Options(),
        Options(
            allow_http_issuers=False,
            most_per_namespace=2000,
            most_per_target=5,
            most_screens_per_target=1,
            ask_seconds=5,
            token_reviews=False,
        ),
    ),
    "what documents leave open": (
        Settings(),
        Settings(
            composition=Composition.ALL,
            allow_unprotected=False,
            denial_format=DenialFormat.HTTP403,
            strict=False,
            ask_seconds=5,
            placement=Placement.AUTO,
        ),
    ),
}


@pytest.mark.parametrize(("default", "written"), VALUES.values(), ids=VALUES.keys())
def test_defaults_stay_as_they_are(default: object, written: object) -> None:
    assert default == written
