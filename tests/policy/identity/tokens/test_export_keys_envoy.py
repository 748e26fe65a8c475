"""Envoy, with the keys it is given, recognises no token that we refuse."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.support.envoy.answered_conditions import rbac
from tests.support.envoy.releases import VERSIONS, Version
from tests.support.eventually import START_LIMIT
from tests.support.issuers.keyrings import Ring, keys, verify
from tests.support.issuers.minting import ISSUER, Signer, claims, mint, rsa_key, segment, signer

from authplane.policy.identity.tokens.algorithms import ALGORITHMS
from authplane.policy.identity.tokens.export_keys import render_jwks
from authplane.policy.identity.tokens.issuer_url import IssuerUrl
from authplane.policy.identity.tokens.token_outcome import Verified
from authplane.policy.identity.tokens.verify import Demands, Trust
from authplane.policy.placement.placement_model import Sender
from authplane.policy.placement.source_placement import header_key, place_source
from authplane.policy.rules.access_settings import IssuerSettings, Settings
from authplane.policy.rules.rule_model import Oidc
from authplane.runtime.child_processes import Line
from authplane.runtime.envoy_process import run_envoy

_TYPES: Final = "type.googleapis.com/envoy.extensions"


class Published(NamedTuple):
    """What an issuer publishes, and what is asked of it."""

    keys: tuple[dict[str, Any], ...]
    demands: Demands = Demands()


SIGNERS: Final = {name: signer(name) for name in ALGORITHMS}
OTHER: Final = Signer("k1", "ES256", ec.generate_private_key(ec.SECP256R1()))
LARGE: Final = Signer("k1", "RS512", rsa_key(1, 3072))
LOW: Final = Signer("k1", "RS256", rsa.generate_private_key(3, 2048))
ODD: Final = Signer('a"\\\u0000\n\u20ac\U0001f511', "ES256", SIGNERS["ES256"].key)
ONLY: Final = Demands(algorithms=frozenset({"RS256", "PS384", "ES256"}))

SETS: Final[dict[str, Published]] = {
    **{f"{name} alone": Published((each.jwk(),)) for name, each in SIGNERS.items() if name != "Ed25519"},
    **{f"{name}, unsaid": Published((each.jwk(alg=None),)) for name, each in SIGNERS.items()},
    "all at once": Published(tuple(each.jwk() for name, each in SIGNERS.items() if name != "Ed25519")),
    "an open RSA key with demands": Published((SIGNERS["RS256"].jwk(alg=None),), ONLY),
    "demands that leave one": Published((SIGNERS["ES256"].jwk(), SIGNERS["ES384"].jwk()), ONLY),
    "two of one name": Published((SIGNERS["ES256"].jwk(), OTHER.jwk())),
    "two types of one name": Published((SIGNERS["PS256"].jwk(), OTHER.jwk(alg=None))),
    "a large RSA key": Published((LARGE.jwk(),)),
    # Nobody has its other half, which would take long to make.
    "an RSA key of 8192 bits": Published((LARGE.jwk(n=segment(b"\xff" * 1024)),)),
    "an RSA key with a low exponent": Published((LOW.jwk(alg=None),)),
    "an odd name": Published((ODD.jwk(),)),
    "many": Published(tuple(SIGNERS["ES256"].jwk(kid=f"m{number}") for number in range(256))),
}
STRICTER: Final = {"EdDSA says Ed25519", "Ed25519", *(f"{name} without a name" for name in ALGORITHMS)}
"""What Envoy does not take although we do."""


def tokens() -> Mapping[str, str]:
    """Return tokens by every key, with every algorithm that it can be used with, rightly or wrongly."""
    now = int(datetime.now(UTC).timestamp())
    payload = claims(iat=now, exp=now + 900)
    signers = {**SIGNERS, "another": OTHER, "large": LARGE, "low": LOW, "odd": ODD}
    found = {name: each.token(payload) for name, each in signers.items()}
    for name, each in SIGNERS.items():
        found[f"{name} without a name"] = mint(each.header(kid=None), payload, each.sign)
        found[f"{name} by another name"] = mint(each.header(kid="k2"), payload, each.sign)
        found[f"{name} by a long name"] = mint(each.header(kid="k" * 257), payload, each.sign)
    for key, algorithm in (("ES256", "ES384"), ("ES256", "ES512"), ("ES384", "ES256"), ("ES512", "ES256")):
        wrong = Signer("k1", algorithm, SIGNERS[key].key)
        found[f"{key} used for {algorithm}"] = wrong.token(payload)
    found["EdDSA says Ed25519"] = mint(SIGNERS["EdDSA"].header(alg="Ed25519"), payload, SIGNERS["EdDSA"].sign)
    for algorithm in ("none", "HS256", "ES256K", "rs256"):
        found[f"RS256 says {algorithm}"] = mint(SIGNERS["RS256"].header(alg=algorithm), payload, SIGNERS["RS256"].sign)
    return found


def bootstrap(socket: Path) -> str:
    """Return a configuration with a route for each set of keys."""
    providers, named, routes = {}, {}, []
    for number, published in enumerate(SETS.values()):
        sender = place_source(
            Oidc(issuer=IssuerUrl(url=ISSUER, literal=ISSUER)),
            Settings(issuers={ISSUER: IssuerSettings(demands=published.demands)}),
        )
        assert isinstance(sender, Sender)
        providers[f"p{number}"] = {
            "issuer": ISSUER,
            "local_jwks": {"inline_string": render_jwks(keys(*published.keys), published.demands)},
            "from_headers": [{"name": "Authorization", "value_prefix": "Bearer "}],
            "payload_in_metadata": ISSUER,
            "header_in_metadata": header_key(ISSUER),
            "require_expiration": True,
            "clock_skew_seconds": 30,
            "forward": True,
        }
        requirements = [{"provider_name": f"p{number}"}, {"allow_missing_or_failed": {}}]
        named[f"p{number}"] = {"requires_any": {"requirements": requirements}}
        routes.append(
            {
                "match": {"prefix": "/", "headers": [{"name": "x-case", "string_match": {"exact": str(number)}}]},
                "direct_response": {"status": 299},
                "typed_per_filter_config": {
                    "jwt": _typed("http.jwt_authn.v3.PerRouteConfig", requirement_name=f"p{number}"),
                    "rbac": _typed("http.rbac.v3.RBACPerRoute", rbac=rbac(sender.shown)),
                },
            }
        )
    filters = {
        "jwt": _typed("http.jwt_authn.v3.JwtAuthentication", providers=providers, requirement_map=named),
        "rbac": _typed("http.rbac.v3.RBAC", rules={}),
        "router": _typed("http.router.v3.Router"),
    }
    manager = _typed(
        "network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="oracle",
        route_config={"virtual_hosts": [{"name": "oracle", "domains": ["*"], "routes": routes}]},
        http_filters=[{"name": name, "typed_config": each} for name, each in filters.items()],
    )
    listener = {
        "name": "oracle",
        "address": {"pipe": {"path": str(socket)}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }
    return json.dumps({"static_resources": {"listeners": [listener]}})


def _typed(name: str, **members: Any) -> dict[str, Any]:
    return {"@type": f"{_TYPES}.filters.{name}", **members}


async def _ignore(_line: Line) -> None:
    pass


def ring_of(published: Published) -> Ring:
    return Ring({ISSUER: Trust(issuer=ISSUER, demands=published.demands, keys=keys(*published.keys))})


@pytest.mark.real
@pytest.mark.requirement("R18")
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.number)
async def test_envoy_verifies_with_the_keys_it_is_given_what_we_verify(version: Version, tmp_path: Path) -> None:
    socket, wider, stricter, both = tmp_path / "s", [], set(), set()
    rings = {kind: ring_of(published) for kind, published in SETS.items()}
    async with (
        run_envoy(bootstrap(socket), sink=_ignore, settings=version.settings()) as envoy,
        httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(uds=str(socket)), timeout=20) as client,
    ):
        await envoy.ready(limit=START_LIMIT)
        for name, token in tokens().items():
            for number, (kind, ring) in enumerate(rings.items()):
                headers = {"x-case": str(number), "authorization": f"Bearer {token}"}
                status = (await client.get("http://shop.test/", headers=headers)).status_code
                assert status in {299, 403}
                ours = verify(token, ring, datetime.now(UTC).timestamp())
                match (status == 299, isinstance(ours, Verified)):
                    case (True, False):
                        wider.append((name, kind))
                    case (False, True):
                        stricter.add(name)
                    case (True, True):
                        both.add(name)
                    case _:
                        pass
    assert wider == []
    assert stricter == STRICTER
    assert both == {*SIGNERS, "another", "large", "low", "odd"} - {"Ed25519"}
